#pragma once
// One question of an evaluation: what the generators make, the runner asks and the scorers judge.

#include <cstdint>
#include <string>
#include <vector>

namespace varve::eval {

/// How an answer becomes a score in [0, 1].
enum class Scorer {
  kContains,        ///< fraction of the references that the answer contains, ignoring case (RULER's string_match_all)
  kContainsAny,     ///< 1 when one reference is contained, ignoring case (RULER's string_match_part)
  kFirstCandidate,  ///< 1 when the first of `choices` that the answer names is references[0]
  kFirstNumber,     ///< 1 when the first number in the answer is references[0]
  kChoice,          ///< 1 when the likeliest of `choices` is references[0]; nothing is generated
  kChoiceLetter,    ///< 1 when the answer says "The correct answer is (X)", X = references[0]
  kF1,              ///< best token F1 over the references (LongBench)
  kRougeL,          ///< best ROUGE-L F over the references (LongBench)
  kAccuracy,        ///< LongBench classification: 1 / (classes named) when references[0] is one of them
  kCopy,            ///< teacher-forced likelihood of references[0]; nothing is generated (echo)
};

/// Items with the same `group` share `context` byte for byte: it is read once and each question runs on a fork.
struct Item {
  std::string id;             ///< unique in its suite and stable: "niah_multikey_1/4096/seed7/3"
  std::string task;           ///< "niah_multikey_1"
  std::string group;          ///< haystack or document: the unit of the cluster bootstrap
  int length = 0;             ///< tokens that prompt and answer may fill (4096, ...)
  std::string context;        ///< instructions and haystack, up to what the group shares
  std::string question;       ///< follows the context in the user's turn
  std::string answer_prefix;  ///< begins the assistant's turn; may be empty
  std::vector<std::string> references;
  std::vector<std::string> choices;
  int answer_tokens = 128;  ///< most tokens to generate; 0 where nothing is generated
  Scorer scorer = Scorer::kContains;
  std::vector<double> depths;    ///< of what is asked for, as fractions of the haystack's tokens
  bool first_line_only = false;  ///< only the first line of the answer counts (LongBench's few-shot datasets)
  int dropped_tokens = 0;        ///< of a loaded document's middle, so that it fits the length
};

}  // namespace varve::eval
