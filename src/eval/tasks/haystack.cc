#include "eval/tasks/haystack.h"

#include <algorithm>
#include <numeric>

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

SentenceText::SentenceText(const Document& document)
    // However the document ends, its last sentence must not run into what follows it.
    : name_(document.name), text_(std::string(trimmed(document.text)) + "\n\n"), sentences_(split_sentences(text_)) {
  if (trimmed(text_).empty()) sentences_.clear();
}

std::vector<std::string_view> SentenceText::from(size_t start, int count) const {
  std::vector<std::string_view> pieces;
  pieces.reserve(static_cast<size_t>(count));
  for (size_t i = start; i < start + static_cast<size_t>(count); ++i)
    pieces.push_back(sentences_[i % sentences_.size()]);
  return pieces;
}

GridDepths::GridDepths(Random& random) : order_(random.sample(kGridPoints, kGridPoints)) {}

std::vector<int> GridDepths::positions(int pieces, int needles) const {
  std::vector<int> taken;
  const auto wanted = static_cast<size_t>(needles);
  const auto place = [&](size_t point) { return static_cast<int>(point) * pieces / (kGridPoints - 1); };
  for (size_t i = 0; i < order_.size() && taken.size() < wanted; ++i)
    if (const int at = place(order_[i]); std::find(taken.begin(), taken.end(), at) == taken.end()) taken.push_back(at);
  for (size_t i = 0; taken.size() < wanted; ++i) taken.push_back(place(order_[i % order_.size()]));
  return taken;
}

}  // namespace varve::eval
