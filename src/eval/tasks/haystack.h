#pragma once
// Text with needles in it.

#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"
#include "eval/tasks/text_tokens.h"

namespace varve::eval {

/// A haystack with its needles, and where they begin.
struct Haystack {
  std::string text;
  std::vector<size_t> needle_offsets;  ///< byte in `text`, in the order in which the needles were given
};

struct Needle {
  std::string text;  ///< with the white space that separates it from what follows
  int before = 0;    ///< the piece that it precedes; the number of pieces: behind the last
};

/// The pieces in their order with the needles between them; needles at one place keep their order.
Haystack insert_needles(const std::vector<std::string_view>& pieces, const std::vector<Needle>& needles);

/// Byte offsets of `text` as fractions of its tokens. Counts each stretch between two offsets by itself.
std::vector<double> token_depths(std::string_view text, const std::vector<size_t>& offsets, const CountTokens& count);

/// A document's own copy as sentences.
class SentenceText {
 public:
  SentenceText(const Document& document, CountTokens count);
  SentenceText(const SentenceText&) = delete;

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(sentences_.size()); }
  const std::vector<std::string_view>& sentences() const { return sentences_; }

  /// `count` sentences, count <= size(), from the sentence `start` on. Behind the last sentence of the document follows
  /// the first: every start is possible, and no sentence comes twice.
  std::vector<std::string_view> from(size_t start, int count) const;
  /// Tokens of each of those sentences by itself.
  std::vector<int> tokens_from(size_t start, int count) const;

 private:
  std::string name_, text_;
  std::vector<std::string_view> sentences_;
  CountTokens count_;
  mutable std::vector<int> tokens_;  ///< of each sentence that was asked for, else -1
};

/// For each depth in [0, 1], the number 0..size of the piece that begins nearest to that share of all pieces' tokens;
/// size: the end. tokens[i] are those of piece i.
std::vector<int> nearest_boundaries(const std::vector<int>& tokens, const std::vector<double>& depths);

/// Depths for needles in a haystack whose size is not known yet: points of a grid of 40 from 0 to 1 in random order,
/// the same for every size.
class GridDepths {
 public:
  explicit GridDepths(Random& random);

  /// Boundaries, between pieces of so many tokens, for at most 40 needles: nearest to the first points whose boundary
  /// is still free, then any free ones; all different when there are as many boundaries as needles.
  std::vector<int> positions(const std::vector<int>& tokens, int needles) const;

 private:
  std::vector<double> points_;
};

}  // namespace varve::eval
