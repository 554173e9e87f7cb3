#pragma once
// Where varve keeps what it fetches, and what a -m argument means. Only this and terminal.h
// read the environment.

#include <filesystem>
#include <span>
#include <string>

#include "varve/status.h"

namespace varve::cli {

/// ${XDG_CACHE_HOME:-~/.cache}/varve/models: the default of --model-dir.
std::filesystem::path default_model_dir();
/// ${XDG_CACHE_HOME:-~/.cache}/varve/texts.
std::filesystem::path default_text_dir();

/// The file that `-m NAME` stands for: a path to an existing file as it is, or a manifest key whose file was pulled
/// into `model_dir`. A kNotFound says what to do: pull it, or which keys there are. A key's file is checked by its
/// SHA-256 (verify.h); kCorrupt when it is not the manifest's.
Result<std::string> resolve_model(const std::string& name, const std::filesystem::path& model_dir);

/// No file of `outputs` is another of them or one of `inputs`, by name or by link; empty names stand for no file.
/// kInvalidArgument names the two.
Status check_distinct(std::span<const std::string> outputs, std::span<const std::string> inputs);

/// "a, b, c" of the manifest's model keys, for messages.
std::string known_models();

}  // namespace varve::cli
