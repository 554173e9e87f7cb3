#pragma once
// Shell completion read off the parser itself, so that it cannot drift from the options.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace varve::cli {

/// What a shell offers for an argument, told by the option's type name (see command.h).
struct CompletionValue {
  bool takes_value = false;
  bool files = false;
  bool directories = false;
  std::vector<std::string> words;
};

struct CompletionOption {
  std::vector<std::string> names;  ///< with their dashes; empty for a positional
  std::string description;
  CompletionValue value;
};

struct CompletionCommand {
  std::string name;
  std::string description;
  std::vector<CompletionOption> options;
  CompletionValue positional;  ///< the union of what the positionals take
};

/// The root's own options and its subcommands.
struct CompletionTree {
  std::vector<CompletionOption> options;
  std::vector<CompletionCommand> commands;
};

CompletionTree read_completion_tree(const CLI::App& root);

std::string bash_completion(const CompletionTree& tree);
std::string zsh_completion(const CompletionTree& tree);
std::string fish_completion(const CompletionTree& tree);

}  // namespace varve::cli
