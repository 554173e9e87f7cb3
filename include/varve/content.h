#pragma once
// What the text of a low-rank page says about which of its rows should stay exact.

namespace varve {

/// Rows are kept exact in the order of their reconstruction error times a boost that these dials make (docs/adr/0021).
/// Defaults are Differential-KV's where its README has one.
struct ContentOptions {
  /// False: the error alone decides, no runs, no rank boost. DKV_RARITY_CAPTURE.
  bool on = true;
  /// A token with IDF(t) = ln(max(N, 2) / (count(t) + 0.1)) of at least least_idf is boosted rarity_weight * IDF times
  /// (never less than once), on top of the boosts below. 1.5: DKV_RARITY_WEIGHT.
  double rarity_weight = 1.5;
  double least_idf = 2.0;     ///< DKV_RARITY_MIN_IDF
  double digit_boost = 20.0;  ///< of tokens with a decimal digit of any script. DKV_BOOST_DIGITS
  double owner_boost = 14.6;  ///< of names in title case, capitals and letters of codes. DKV_BOOST_OWNER
  double rare_boost = 7.3;    ///< of other words that hold a rare token. DKV_BOOST_RARE
  /// A token seen at most this often, its own page included, is rare. Ours: the README names no bound.
  int rare_count = 2;
  int run_gap_tokens = 1;    ///< tokens between two parts of one run
  int most_run_tokens = 32;  ///< longer runs are cut; 0: no runs
  /// Of the rank, up to the format's, on pages with numeric data, formulas or definitions. README, section Algorithmic
  /// Rank-Boosting.
  double rank_boost = 1.5;
  double numeric_share = 0.05;  ///< least share of tokens with digits that makes a page numeric data. Ours
  bool operator==(const ContentOptions&) const = default;
};

}  // namespace varve
