#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "base/manifest.h"

namespace varve::cli {
namespace {

void add_manifest_keys(std::vector<std::string>& words, bool texts) {
  for (const ManifestModel& model : manifest().models) words.push_back(model.key);
  if (!texts) return;
  for (const ManifestText& text : manifest().texts) words.push_back(text.key);
}

/// The members of a "{a,b,c}" in a type name: CLI::IsMember describes itself so.
std::vector<std::string> members(const std::string& type_name) {
  const size_t open = type_name.find('{');
  const size_t close = type_name.find('}', open == std::string::npos ? 0 : open);
  std::vector<std::string> words;
  if (open == std::string::npos || close == std::string::npos) return words;
  std::istringstream list(type_name.substr(open + 1, close - open - 1));
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

CompletionValue read_value(const CLI::Option& option) {
  CompletionValue value;
  value.takes_value = option.get_type_size_max() > 0 && option.get_items_expected_max() > 0;
  if (!value.takes_value) return value;
  const std::string type = option.get_type_name();
  const std::string base = type.substr(0, type.find(':'));
  value.words = members(type);
  value.files = base == "FILE" || base == "MODEL" || base == "PROFILE";
  value.directories = base == "DIR";
  if (base == "MODEL") add_manifest_keys(value.words, false);
  if (base == "KEY") add_manifest_keys(value.words, true);
  return value;
}

std::vector<CompletionOption> read_options(const CLI::App& app) {
  std::vector<CompletionOption> options;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional()) continue;
    CompletionOption read{{}, option->get_description(), read_value(*option)};
    for (const std::string& name : option->get_snames()) read.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) read.names.push_back("--" + name);
    options.push_back(std::move(read));
  }
  return options;
}

CompletionValue read_positionals(const CLI::App& app) {
  CompletionValue all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) continue;
    const CompletionValue one = read_value(*option);
    all.takes_value |= one.takes_value;
    all.files |= one.files;
    all.directories |= one.directories;
    all.words.insert(all.words.end(), one.words.begin(), one.words.end());
  }
  return all;
}

std::string join(const std::vector<std::string>& words, const char* separator = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

/// Inside single quotes of a POSIX-like shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Inside single quotes of fish, where a backslash escapes.
std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

/// For a zsh _arguments spec: brackets and colons are syntax there.
std::string zsh_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// The compgen call that offers `value`.
std::string bash_compgen(const CompletionValue& value, const std::vector<std::string>& more_words = {}) {
  std::vector<std::string> words = value.words;
  words.insert(words.end(), more_words.begin(), more_words.end());
  std::string call = "compgen -W " + shell_quoted(join(words));
  if (value.files) call += " -f";
  if (value.directories) call += " -d";
  return call + " -- \"$cur\"";
}

std::vector<std::string> all_names(const std::vector<CompletionOption>& options) {
  std::vector<std::string> names;
  for (const CompletionOption& option : options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::string zsh_action(const CompletionValue& value) {
  // The leading blank keeps _arguments from adding its own arguments before ours.
  if (!value.words.empty() && value.files) return " _varve_words_or_files " + join(value.words);
  if (!value.words.empty()) return "(" + join(value.words) + ")";
  if (value.directories) return "_files -/";
  if (value.files) return "_files";
  return " ";
}

std::string zsh_specs(const std::vector<CompletionOption>& options) {
  std::string text;
  for (const CompletionOption& option : options) {
    for (const std::string& name : option.names) {
      std::string spec = name + "[" + zsh_escaped(option.description) + "]";
      if (option.value.takes_value) spec += ":value:" + zsh_action(option.value);
      text += " \\\n        " + shell_quoted(spec);
    }
  }
  return text;
}

std::string fish_value(const CompletionValue& value) {
  if (!value.takes_value) return "";
  std::string text = value.files || value.directories ? " -r -F" : " -x";
  std::vector<std::string> words = value.words;
  if (!words.empty()) text += " -a " + fish_quoted(join(words));
  return text;
}

}  // namespace

CompletionTree read_completion_tree(const CLI::App& root) {
  CompletionTree tree;
  tree.options = read_options(root);
  // The const overload with no filter lists every subcommand, in the order of the table.
  for (const CLI::App* sub : root.get_subcommands([](const CLI::App*) { return true; }))
    tree.commands.push_back({sub->get_name(), sub->get_description(), read_options(*sub), read_positionals(*sub)});
  return tree;
}

std::string bash_completion(const CompletionTree& tree) {
  std::vector<std::string> first = all_names(tree.options);
  for (const CompletionCommand& command : tree.commands) first.push_back(command.name);
  std::ostringstream out;
  out << "# bash completion for varve\n"
         "_varve() {\n"
         "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W "
      << shell_quoted(join(first))
      << " -- \"$cur\")\n"
         "    return\n"
         "  fi\n"
         "  case \"${COMP_WORDS[1]}\" in\n";
  for (const CompletionCommand& command : tree.commands) {
    out << "    " << command.name << ")\n      case \"$prev\" in\n";
    for (const CompletionOption& option : command.options) {
      if (!option.value.takes_value) continue;
      out << "        " << join(option.names, "|") << ") mapfile -t COMPREPLY < <(" << bash_compgen(option.value)
          << "); return ;;\n";
    }
    out << "      esac\n"
        << "      case \"$cur\" in\n"
        << "        -*) mapfile -t COMPREPLY < <(" << bash_compgen({}, all_names(command.options)) << ") ;;\n"
        << "        *) mapfile -t COMPREPLY < <(" << bash_compgen(command.positional) << ") ;;\n"
        << "      esac ;;\n";
  }
  out << "  esac\n"
         "}\n"
         "complete -o filenames -F _varve varve\n";
  return out.str();
}

std::string zsh_completion(const CompletionTree& tree) {
  std::ostringstream out;
  out << "#compdef varve\n"
         "_varve_words_or_files() { _alternative \"words:word:($*)\" 'files:file:_files' }\n"
         "_varve() {\n"
         "  local -a commands\n"
         "  commands=(\n";
  for (const CompletionCommand& command : tree.commands)
    out << "    " << shell_quoted(command.name + ":" + zsh_escaped(command.description)) << "\n";
  out << "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe command commands\n"
         "    _arguments"
      << zsh_specs(tree.options)
      << "\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  (( CURRENT-- ))\n"
         "  case $command in\n";
  for (const CompletionCommand& command : tree.commands) {
    out << "    " << command.name << ")\n      _arguments" << zsh_specs(command.options);
    if (command.positional.takes_value)
      out << " \\\n        " << shell_quoted("*:argument:" + zsh_action(command.positional));
    out << " ;;\n";
  }
  out << "  esac\n"
         "}\n"
         "if [ \"$funcstack[1]\" = _varve ]; then _varve \"$@\"; else compdef _varve varve; fi\n";
  return out.str();
}

std::string fish_completion(const CompletionTree& tree) {
  std::ostringstream out;
  const auto option_lines = [&out](const std::string& condition, const std::vector<CompletionOption>& options) {
    for (const CompletionOption& option : options) {
      out << "complete -c varve -n " << shell_quoted(condition);
      for (const std::string& name : option.names)
        out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
      out << fish_value(option.value) << " -d " << fish_quoted(option.description) << "\n";
    }
  };
  out << "# fish completion for varve\n"
         "complete -c varve -f\n";
  option_lines("__fish_use_subcommand", tree.options);
  for (const CompletionCommand& command : tree.commands) {
    out << "complete -c varve -n __fish_use_subcommand -a " << command.name << " -d "
        << fish_quoted(command.description) << "\n";
    const std::string inside = "__fish_seen_subcommand_from " + command.name;
    option_lines(inside, command.options);
    if (!command.positional.words.empty())
      out << "complete -c varve -n " << shell_quoted(inside) << " -a " << fish_quoted(join(command.positional.words))
          << "\n";
    if (command.positional.files) out << "complete -c varve -n " << shell_quoted(inside) << " -F\n";
  }
  return out.str();
}

}  // namespace varve::cli
