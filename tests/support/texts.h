#pragma once
// Prompts for tests: written for this project, deterministic, a little over 700 tokens in every tokenizer we use.

#include <string>

namespace varve::testing {

std::string english_text();
std::string code_text();
/// Chinese, Japanese, Korean and emoji.
std::string cjk_text();

}  // namespace varve::testing
