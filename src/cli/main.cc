// varve: one program, one subcommand per job. Options are declared by the commands; this file only dispatches.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/build_info.h"
#include "cli/command.h"
#include "cli/report.h"

namespace {

varve::Status run(const varve::cli::Action& action) {
  try {
    const varve::Status status = action();
    // A full disk or a closed pipe under stdout is a failure too: the caller would read a truncated result.
    if (status.ok() && !std::cout.flush()) return varve::io_error("writing to stdout failed");
    if (status.ok() && std::fflush(stdout) != 0) return varve::io_error("writing to stdout failed");
    return status;
  } catch (const std::bad_alloc&) {
    return varve::resource_exhausted("out of memory");
  } catch (const std::exception& e) {
    return varve::internal_error(e.what());
  }
}

/// CLI11 reads "-ctk" as "-c tk". These three are spelled so by every llama.cpp user, so they become their long names.
std::vector<std::string> read_arguments(int argc, char** argv) {
  static const std::map<std::string_view, std::string> kLongNames = {
      {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-ngl", "--n-gpu-layers"}};
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const auto known = kLongNames.find(argv[i]);
    arguments.push_back(known == kLongNames.end() ? argv[i] : known->second);
  }
  return arguments;
}

std::string names(const std::vector<std::pair<CLI::App*, varve::cli::Action>>& defined) {
  std::string list;
  for (const auto& [sub, action] : defined) list += (list.empty() ? "" : ", ") + sub->get_name();
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace varve::cli;

  CLI::App app{"Varve runs GGUF language models over a KV cache whose pages live at several fidelities at once."};
  app.name("varve");
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  app.set_version_flag("--version", std::string("varve ") + varve::build_info().version);
  app.footer(
      "`varve COMMAND --help` explains a command. Exit codes: 0 ok, 1 internal, 2 usage, 3 input, 4 limit, "
      "5 system, 130 interrupted.");

  std::vector<std::pair<CLI::App*, Action>> defined;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    defined.emplace_back(sub, command.define(*sub));
  }

  const auto chosen = [&]() -> std::string {
    for (const auto& [sub, action] : defined)
      if (sub->parsed()) return sub->get_name();
    return "";
  };
  std::vector<std::string> arguments = read_arguments(argc, argv);
  const std::string first = arguments.empty() || arguments[0].starts_with('-') ? "" : arguments[0];
  if (!first.empty() && std::ranges::none_of(defined, [&](const auto& one) { return one.first->get_name() == first; }))
    return report("", varve::invalid_argument("unknown command '" + first + "' (known: " + names(defined) + ")"));
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    const std::string hint = chosen().empty() ? " (see varve --help)" : " (see varve " + chosen() + " --help)";
    return report(chosen(), varve::invalid_argument(e.what() + hint));
  }
  for (const auto& [sub, action] : defined)
    if (sub->parsed()) return report(sub->get_name(), run(action));
  return kExitUsage;
}
