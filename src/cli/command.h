#pragma once
// The table of subcommands. To add one: write commands/NAME.cc with a define_NAME, declare it below, add its line to
// the table in commands.cc. Help, error reporting, exit codes and shell completion follow from the table.

#include <functional>
#include <span>

#include "varve/status.h"

namespace CLI {
class App;
}

namespace varve::cli {

/// What a chosen command does. It may print its result on stdout; a failure is returned, never printed: main reports
/// it.
using Action = std::function<Status()>;

struct Command {
  const char* name;
  const char* summary;  ///< one line for `varve --help`
  /// Adds the command's options to `app` and returns the action that reads them. The storage behind the options must
  /// live as long as the action: keep it in a shared_ptr that the action captures.
  /// Option type names say what the shell completes: FILE, DIR, MODEL (manifest keys and files), KEY (manifest keys),
  /// PROFILE (profile names and files); CLI::IsMember completes its members.
  Action (*define)(CLI::App& app);
};

std::span<const Command> commands();

Action define_bench(CLI::App& app);
Action define_calibrate(CLI::App& app);
Action define_chat(CLI::App& app);
Action define_complete(CLI::App& app);
Action define_eval(CLI::App& app);
Action define_inspect(CLI::App& app);
Action define_pull(CLI::App& app);
Action define_run(CLI::App& app);
Action define_version(CLI::App& app);

}  // namespace varve::cli
