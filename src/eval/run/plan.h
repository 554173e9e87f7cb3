#pragma once
// What an evaluation has to read and ask, before any of it is done.

#include <cstdint>
#include <string>
#include <vector>

#include "eval/run/arms.h"
#include "eval/run/prompt.h"
#include "eval/tasks/item.h"
#include "eval/tasks/text_tokens.h"
#include "model/model.h"

namespace varve::eval {

inline constexpr const char* kKldSuite = "kld";
inline constexpr const char* kLongBenchSuite = "longbench";

enum class Mode {
  kA,  ///< the dense arm reads the context, the others take its rows over: pages are compressed after prefill
  kB,  ///< every arm reads over its own compressed pages: what a user gets
};
const char* mode_name(Mode mode);  ///< "A", "B"

struct EvalOptions {
  std::string suite = kKldSuite;
  std::vector<ArmSpec> arms;  ///< of parse_arms
  std::vector<int> lengths;
  int n = 8;  ///< kld: slices; tasks: haystacks; files of a benchmark: their first n questions
  uint64_t seed = 1;
  std::vector<std::string> tasks;  ///< empty: all of the suite
  Mode mode = Mode::kB;
  std::vector<Document> documents;
  std::string data;  ///< a published benchmark's file: LongBench v2 (docmcq), v1 (longbench), RULER (ruler)
  int threads = 0;
  std::string kernel;
  std::string weight_gemm;  ///< empty: "ggml" in the kld suite, so that arms differ by the cache alone; else "auto"
  int chunk_tokens = 0;     ///< rows of one step; 0: 128 in the kld suite, else 512

  bool is_kld() const { return suite == kKldSuite; }
  std::string weight_products() const { return !weight_gemm.empty() ? weight_gemm : is_kld() ? "ggml" : "auto"; }
  int step_tokens() const { return chunk_tokens > 0 ? chunk_tokens : is_kld() ? 128 : 512; }
};

/// A question ready to be asked: its prompt is the group's shared tokens and `rest`.
struct ItemPrompt {
  Item item;
  Tokens rest;
  std::string prompt_sha256;
  int prompt_tokens = 0;
  std::vector<Tokens> choices;  ///< tokens of item.choices after the prompt (kChoice)
  Tokens copy;                  ///< tokens of references[0] after the prompt (kCopy)
};

/// Questions about one context.
struct Group {
  std::string name;
  int length = 0;
  Tokens shared;
  std::vector<ItemPrompt> questions;
  int tokens = 0;  ///< of the longest prompt with its answer
};

/// A piece of a text of the kld suite.
struct Slice {
  std::string id, text;  ///< text: the document's name
  int length = 0;
  Tokens tokens;
  std::string sha256;
};

struct Plan {
  std::vector<Group> groups;
  std::vector<Slice> slices;
};

/// Names for --suite.
std::vector<std::string> eval_suites();

/// kInvalidArgument: unknown suite or task (lists the valid ones), n not positive, no length, a document that is
/// missing; kContextOverflow: a length above the model's context; kResourceExhausted: a text shorter than the length.
Result<Plan> make_plan(const model::Model& model, const EvalOptions& options);

/// Slice i of `n`: of documents[i % size], `length` tokens (with the model's first token, if it has one) from a place
/// that seed, document and i choose; slices of one document overlap only where it is too short for anything else. A
/// longer run begins with the slices of a shorter one.
Result<std::vector<Slice>> make_slices(const model::Model& model, const std::vector<Document>& documents, int length,
                                       int n, uint64_t seed);

}  // namespace varve::eval
