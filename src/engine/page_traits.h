#pragma once
// What the text of a page says about its rows (content/traits.h), for the conversions that ask: from the tokens of a
// session that holds the page, up to the page's end and no further, so that it does not matter which session that is.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>

#include "cache/cache.h"
#include "content/traits.h"
#include "model/model.h"

namespace varve::engine {

/// Settled tokens of a session; empty when there is none of that id.
using TokensOf = std::function<std::span<const int32_t>(cache::SequenceId)>;

/// Of all that decides what a text's traits are.
uint64_t content_digest(const ContentOptions& options);

class PageTraits {
 public:
  /// `model` and what tokens_of reads outlive the object.
  PageTraits(const model::Model& model, const ContentOptions& options, TokensOf tokens_of)
      : model_(model), options_(options), tokens_of_(std::move(tokens_of)) {}

  /// Traits of the page, computed once until forget(). Without a session that has all its tokens they are empty, and
  /// counted in missing().
  const format::TokenTraits& of(cache::PageId page, cache::SequenceId holder, int start, int page_tokens);
  void forget(cache::PageId page) { traits_.erase(page); }
  /// Drops what belongs to pages that are gone or no longer converting, and to sessions that are gone.
  void collect(const cache::Cache& cache);

  uint64_t missing() const { return missing_; }

 private:
  /// A session's text read up to some position: its pages come in order, mostly.
  struct Progress {
    content::Reader reader;
    int position = 0;
  };

  std::vector<content::Token> texts(std::span<const int32_t> tokens);

  const model::Model& model_;
  const ContentOptions options_;
  const TokensOf tokens_of_;
  std::map<cache::PageId, format::TokenTraits> traits_;
  std::map<cache::SequenceId, Progress> progress_;
  std::unordered_map<int32_t, std::string> pieces_;  ///< by token; the texts' bytes
  uint64_t missing_ = 0;
};

}  // namespace varve::engine
