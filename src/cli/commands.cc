#include "cli/command.h"

namespace varve::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"pull", "fetch a known model or text, checked by SHA-256, and print its path", define_pull},
      {"bench", "measure speed, parity and KL beside llama.cpp and the dense cache", define_bench},
      {"calibrate", "measure what each format costs a model, and write the profile that costs least", define_calibrate},
      {"eval", "prove what each profile keeps: divergence and task scores beside dense and llama.cpp", define_eval},
      {"complete", "print a completion script for bash, zsh or fish", define_complete},
      {"run", "answer one prompt, or many questions about one document", define_run},
      {"chat", "talk with a model: history, documents, streamed answers", define_chat},
      {"inspect", "a model's KV geometry and what each profile would cost, or the picture of a trace", define_inspect},
      {"version", "print what this build is", define_version},
  };
  return kCommands;
}

}  // namespace varve::cli
