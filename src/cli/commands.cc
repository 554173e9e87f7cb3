#include "cli/command.h"

namespace varve::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"complete", "print a completion script for bash, zsh or fish", define_complete},
      {"version", "print what this build is", define_version},
  };
  return kCommands;
}

}  // namespace varve::cli
