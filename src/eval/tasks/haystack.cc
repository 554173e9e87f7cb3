#include "eval/tasks/haystack.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "eval/tasks/sentences.h"

namespace varve::eval {
namespace {

constexpr int kGridPoints = 40;

}  // namespace

Haystack insert_needles(const std::vector<std::string_view>& pieces, const std::vector<Needle>& needles) {
  std::vector<size_t> order(needles.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return needles[a].before < needles[b].before; });

  Haystack out;
  out.needle_offsets.resize(needles.size());
  auto next = order.begin();
  for (size_t piece = 0; piece <= pieces.size(); ++piece) {
    for (; next != order.end() && (needles[*next].before <= static_cast<int>(piece) || piece == pieces.size());
         ++next) {
      out.needle_offsets[*next] = out.text.size();
      out.text += needles[*next].text;
    }
    if (piece < pieces.size()) out.text += pieces[piece];
  }
  return out;
}

std::vector<double> token_depths(std::string_view text, const std::vector<size_t>& offsets, const CountTokens& count) {
  std::vector<size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });

  std::vector<double> depths(offsets.size());
  size_t at = 0;
  int tokens = 0;
  for (const size_t i : order) {
    if (offsets[i] > at) tokens += count(text.substr(at, offsets[i] - at));
    at = offsets[i];
    depths[i] = tokens;
  }
  if (at < text.size()) tokens += count(text.substr(at));
  for (double& depth : depths) depth /= std::max(1, tokens);
  return depths;
}

SentenceText::SentenceText(const Document& document, CountTokens count)
    // However the document ends, its last sentence must not run into what follows it.
    : name_(document.name),
      text_(std::string(trimmed(document.text)) + "\n\n"),
      sentences_(split_sentences(text_)),
      count_(std::move(count)) {
  if (trimmed(text_).empty()) sentences_.clear();
  tokens_.assign(sentences_.size(), -1);
}

std::vector<std::string_view> SentenceText::from(size_t start, int count) const {
  std::vector<std::string_view> pieces;
  pieces.reserve(static_cast<size_t>(count));
  for (size_t i = start; i < start + static_cast<size_t>(count); ++i)
    pieces.push_back(sentences_[i % sentences_.size()]);
  return pieces;
}

std::vector<int> SentenceText::tokens_from(size_t start, int count) const {
  std::vector<int> tokens;
  tokens.reserve(static_cast<size_t>(count));
  for (size_t i = start; i < start + static_cast<size_t>(count); ++i) {
    int& known = tokens_[i % sentences_.size()];
    if (known < 0) known = count_(sentences_[i % sentences_.size()]);
    tokens.push_back(known);
  }
  return tokens;
}

std::vector<int> nearest_boundaries(const std::vector<int>& tokens, const std::vector<double>& depths) {
  std::vector<int64_t> begins = {0};
  for (const int count : tokens) begins.push_back(begins.back() + count);
  std::vector<int> nearest;
  for (const double depth : depths) {
    const int64_t at = std::llround(depth * double(begins.back()));
    auto next = std::lower_bound(begins.begin(), begins.end(), at);
    if (next != begins.begin() && *next - at > at - *std::prev(next)) --next;
    nearest.push_back(static_cast<int>(next - begins.begin()));
  }
  return nearest;
}

GridDepths::GridDepths(Random& random) {
  for (const size_t point : random.sample(kGridPoints, kGridPoints))
    points_.push_back(double(point) / (kGridPoints - 1));
}

std::vector<int> GridDepths::positions(const std::vector<int>& tokens, int needles) const {
  std::vector<int> candidates = nearest_boundaries(tokens, points_);
  for (size_t i = 0; i <= tokens.size(); ++i) candidates.push_back(static_cast<int>(i));
  const auto wanted = static_cast<size_t>(needles);
  std::vector<int> taken;
  for (size_t i = 0; i < candidates.size() && taken.size() < wanted; ++i)
    if (std::find(taken.begin(), taken.end(), candidates[i]) == taken.end()) taken.push_back(candidates[i]);
  while (taken.size() < wanted) taken.push_back(0);
  return taken;
}

}  // namespace varve::eval
