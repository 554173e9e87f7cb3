#pragma once
// What the natural tasks share: prose from a place that the seed chooses, with needles at sentence boundaries.

#include "eval/tasks/generators.h"

namespace varve::eval {

/// Fills the draft's haystack with the source's text from a random sentence on; needle i lies at the sentence boundary
/// nearest to depths[i].
inline void hide_in_prose(Draft& draft, const Source& source, Random& random, std::vector<std::string> needles,
                          std::vector<double> depths, int min_sentences) {
  draft.document = source.text->name();
  draft.min_units = min_sentences;
  draft.max_units = source.text->size();
  const size_t start = random.below(static_cast<uint64_t>(source.text->size()));
  draft.fill = [text = source.text, start, needles = std::move(needles), depths = std::move(depths)](int sentences) {
    const std::vector<int> at = nearest_boundaries(text->tokens_from(start, sentences), depths);
    std::vector<Needle> placed;
    for (size_t i = 0; i < needles.size(); ++i) placed.push_back({needles[i], at[i]});
    return insert_needles(text->from(start, sentences), placed);
  };
}

}  // namespace varve::eval
