#include "engine/page_traits.h"

#include <xxhash.h>

#include <array>
#include <bit>

#include "model/text.h"

namespace varve::engine {

uint64_t content_digest(const ContentOptions& options) {
  // Names every member: one more does not compile.
  const auto& [on, rarity_weight, least_idf, digit_boost, owner_boost, rare_boost, rare_count, run_gap_tokens,
               most_run_tokens, rank_boost, numeric_share] = options;
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  const std::array words = {uint64_t{on},
                            bits(rarity_weight),
                            bits(least_idf),
                            bits(digit_boost),
                            bits(owner_boost),
                            bits(rare_boost),
                            static_cast<uint64_t>(rare_count),
                            static_cast<uint64_t>(run_gap_tokens),
                            static_cast<uint64_t>(most_run_tokens),
                            bits(rank_boost),
                            bits(numeric_share)};
  return XXH64(words.data(), sizeof(words), 1);
}

std::vector<content::Token> PageTraits::texts(std::span<const int32_t> tokens) {
  std::vector<content::Token> out;
  out.reserve(tokens.size());
  for (const int32_t token : tokens) {
    const auto [it, fresh] = pieces_.try_emplace(token);
    if (fresh) {
      auto text = model::piece(model_, token, /*special=*/false);
      if (text.ok()) it->second = std::move(*text);
    }
    out.push_back({token, it->second});
  }
  return out;
}

const format::TokenTraits& PageTraits::of(cache::PageId page, cache::SequenceId holder, int start, int page_tokens) {
  const auto [it, fresh] = traits_.try_emplace(page);
  if (!fresh) return it->second;
  const std::span<const int32_t> tokens = tokens_of_(holder);
  const auto begin = static_cast<size_t>(start), n = static_cast<size_t>(page_tokens);
  if (tokens.size() < begin + n) {
    ++missing_;
    return it->second;
  }
  auto known = progress_.find(holder);
  if (known == progress_.end() || known->second.position > start) {
    known = progress_.insert_or_assign(holder, Progress{content::Reader(options_), 0}).first;
  }
  Progress& progress = known->second;
  const auto from = static_cast<size_t>(progress.position);
  progress.reader.skip(texts(tokens.subspan(from, begin - from)));
  it->second = progress.reader.page(texts(tokens.subspan(begin, n)));
  progress.position = start + page_tokens;
  return it->second;
}

void PageTraits::collect(const cache::Cache& cache) {
  std::erase_if(traits_, [&](const auto& entry) {
    const auto page = cache.page(entry.first);
    return !page || !page->converting;
  });
  std::erase_if(progress_, [&](const auto& entry) { return !cache.contains(entry.first); });
}

}  // namespace varve::engine
