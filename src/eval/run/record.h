#pragma once
// What one arm did with one item: a line of items.jsonl. docs/json.md lists the keys.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/divergence.h"
#include "eval/run/arm.h"

namespace varve::eval {

/// Divergence from a reference at some positions: of every compared token of a text, or of the reference's own answer,
/// fed to the arm token by token.
struct Divergences {
  std::vector<double> kl;             ///< KL(reference || arm) in nats
  int64_t same_top = 0;               ///< positions with the same most likely token
  double nll_reference = 0, nll = 0;  ///< sums of -log p(next) over the positions

  void add(const TokenDivergence& t);
};

/// Sums of a part of the positions.
struct Stratum {
  int64_t n = 0;
  double kl_sum = 0;
  int64_t same_top = 0;
};

struct ItemRecord {
  std::string id, task, group, arm, mode;
  int length = 0;
  std::string profile_digest;  ///< ArmSpec::digest
  std::string prompt_sha256;   ///< of the prompt's tokens, first 16 hexadecimal digits
  std::string model_digest;
  int prompt_tokens = 0;
  int dropped_tokens = 0;  ///< of the document's middle, so that it fits the length
  double score = 0;
  std::string answer;  ///< generated text, or the choice that was likeliest
  std::vector<std::string> references;
  std::vector<double> depths;
  std::vector<double> choice_log_p;  ///< of each choice, by likelihood
  Divergences divergence;            ///< from the dense arm
  Divergences peer_divergence;       ///< of a peer, from libllama's own f16 cache; empty otherwise
  std::map<std::string, Stratum> strata;
  int context_tokens = 0;  ///< that `bytes` hold
  ArmBytes bytes;          ///< after reading the context, with nothing branched off yet
  Fallbacks fallbacks;
  double seconds = 0;  ///< that the arm took; of the context, its share of the items that share it
};

nlohmann::ordered_json record_json(const ItemRecord& record);
/// kCorrupt names the key that is missing or of another type.
Result<ItemRecord> parse_record(const nlohmann::ordered_json& json);

/// First 16 hexadecimal digits of the SHA-256 of the tokens.
std::string hash_tokens(std::span<const int32_t> tokens);

}  // namespace varve::eval
