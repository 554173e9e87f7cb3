#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/completion.h"

namespace varve::cli {

Action define_complete(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "the shell to complete for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.footer(
      "bash: eval \"$(varve complete bash)\" in ~/.bashrc\n"
      "zsh:  varve complete zsh > a directory of $fpath, as _varve\n"
      "fish: varve complete fish > ~/.config/fish/completions/varve.fish");
  return [&app, shell] {
    const CompletionTree tree = read_completion_tree(*app.get_parent());
    std::cout << (*shell == "bash"  ? bash_completion(tree)
                  : *shell == "zsh" ? zsh_completion(tree)
                                    : fish_completion(tree));
    return Status();
  };
}

}  // namespace varve::cli
