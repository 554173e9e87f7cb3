#pragma once
// A profile says which format each tier of each layer uses, and the numbers of the lifecycle policy.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "varve/content.h"
#include "varve/status.h"

namespace varve {

/// Formats by tier; names as in docs/formats.md ("f16", "fp8", "int8", "k4v3" ...). Empty: the tier is not used.
struct TierFormats {
  std::string recent;
  std::string anchor;
  std::string stale1;
  std::string stale2;
  /// "none", "post", "rotary", or "auto": rotary in layers whose keys have a bias, else post. Empty in an override: as
  /// the profile says.
  std::string centre;

  bool operator==(const TierFormats&) const = default;
};

/// Formats of some layers that differ from the profile's. Layers are counted among those that own KV, from 0;
/// negative numbers count from the end (-1 is the last).
struct LayerOverride {
  int first = 0;
  int last = 0;
  TierFormats formats;  ///< empty fields keep the profile's

  bool operator==(const LayerOverride&) const = default;
};

/// Which old pages are kept in, or brought back to, the anchor tier: those that measured attention returns to
/// (docs/lifecycle.md). Has an effect only in profiles with an anchor format.
struct Scoring {
  bool on = false;  ///< measure attention; off: only pages the caller marks are anchors
  int anchor_tokens =
      512;  ///< of one session: old pages that attention may keep in the anchor tier, without marked ones
  /// Rows of each session scored in a sampled step: the last new ones.
  int rows = 16;
  int every_steps = 1;        ///< of a session's decode steps, every n-th is sampled; prefill steps always are
  int layer_stride = 1;       ///< every n-th layer of an attention class is sampled, with all its query heads
  double decay = 0.8;         ///< beta of the moving average of page mass (Minima-KV, equation 9), per sampled step
  double score_weight = 1.0;  ///< of the page's share of the mass in its rank
  double age_weight = 0.0;    ///< of its youth in its rank
  double enter_ratio = 1.25;  ///< a page replaces the weakest anchor when its value is this many times higher
  double least_score = 1.0;   ///< mass below this many times the mean page's earns no anchor
  double leave_score = 0.5;   ///< an anchor fades when its mass falls below this many times the mean page's
  int dwell_tokens = 64;      ///< a page that moved stays where it is for this many tokens
  /// Where a promoted page's fidelity comes from: "disk" or "host" (a copy kept at demotion while scoring is on,
  /// counted there; recompute when there is none), "recompute" (the model reads its tokens again), "none" (rebuilt from
  /// the codes: counted as lossy).
  std::string restore = "disk";
  int recompute_tokens_per_step = 4;  ///< rows that a recomputation adds to a step of its session

  bool operator==(const Scoring&) const = default;
};

/// Which pages a token attends to (docs/profiles.md, "router"). Layers with a sliding window are never routed.
struct Routing {
  int pages = 0;             ///< most old pages that a KV head of a layer attends to for one token; 0: all, no router
  int from_tokens = 4096;    ///< tokens with a shorter context than this attend to all pages
  int window_tokens = 512;   ///< every token attends to its last so many, whole pages
  int reroute_steps = 1;     ///< decode steps of a session that share a selection
  bool prefill = false;      ///< prompts are routed as well, block by block, but for their last question_tokens
  int question_tokens = 64;  ///< last tokens of a prompt that attend to all pages

  bool operator==(const Routing&) const = default;
};

/// Ranks by depth: layers get the rank of the profile's low-rank formats times one of these, rounded, at least 1.
/// Formats that a LayerOverride names are as they are. Differential-KV's README names 0.75, 1.5 and 0.5.
struct RankBands {
  double early = 1.0;         ///< first third of the layers that own KV
  double middle = 1.0;        ///< second third
  double late = 1.0;          ///< last third
  double early_boost = 1.0;   ///< of the first early_share, instead of `early`; 1: none. The README's is 2
  double early_share = 0.15;  ///< of the layers

  /// For layer `ordinal` of `count`.
  double factor(int ordinal, int count) const;
  bool operator==(const RankBands&) const = default;
};

/// How low-rank pages are made (src/format/lr/FORMAT.md). Has an effect only in profiles with a low-rank format.
struct LowRankPages {
  double energy = 0.9999;        ///< least share of a page's energy that its directions keep, up to the format's rank
  int least_rank = 4;            ///< fewer only where a page has fewer directions
  uint64_t seed = 1234;          ///< of the sketch
  int oversample = 5;            ///< sketch width beyond the rank
  int power_iterations = 2;      ///< of the randomised SVD
  double coverage_bonus = 0.25;  ///< how much more the worst row of every 64 counts when exact rows are chosen
  double edge_bonus = 0.25;      ///< how much more a row counts whose key the directions confuse with the one before it
  RankBands bands;
  ContentOptions content;

  bool operator==(const LowRankPages&) const = default;
};

struct Profile {
  std::string name;
  std::string description;
  int page_tokens = 256;           ///< multiple of 64
  int recent_tokens = 512;         ///< pages younger than this stay in the recent tier
  int sink_tokens = 16;            ///< first tokens kept exact beside the pages, at most 16
  uint64_t rotation_seed = 1;      ///< of the random signs; part of the page fingerprint
  bool inner_product_norm = true;  ///< K norm correction: inner product, else matched norm
  /// A step converts at most this many tokens of each sequence it feeds, or as many as it feeds if those are more.
  int convert_tokens_per_step = 32;
  Scoring scoring;
  LowRankPages low_rank;
  Routing router;
  TierFormats formats;
  std::vector<LayerOverride> layers;
  /// What `varve calibrate` measured, as a JSON object (docs/calibrate.md); empty: nothing. Not part of the digest.
  std::string calibration;
  /// Digest of the model that it was measured on: no other model may use the profile. Empty: any model.
  std::string model_digest;

  /// "dense", "fp8", "int8", "minima", "dkv-low", "dkv-mid", "dkv-high", "dkv-ultra"; a uniform format such as "k4v3";
  /// or a JSON file.
  static Result<Profile> load(const std::string& name_or_path);
  static Result<Profile> from_json(std::string_view text);
  static Result<Profile> named(std::string_view name);
  /// Every tier in one format, the centre chosen by layer. A low-rank format is for old pages; recent ones are int8.
  static Result<Profile> uniform(const std::string& format);
  static std::vector<std::string> names();

  std::string to_json() const;
  /// Unknown formats, impossible combinations, numbers out of range: the first problem, with the numbers.
  Status validate() const;
  /// SHA-256 (first 16 hex digits) of the JSON without name, description and calibration: two profiles that store the
  /// same bytes agree.
  std::string digest() const;
  /// Takes over a calibration record and the model digest in it. kInvalidArgument when the text is no JSON object or
  /// has no "model" with a "digest".
  Status set_calibration(std::string_view json);
  /// Formats of KV layer `ordinal` of `count`, rank bands and overrides applied.
  TierFormats layer_formats(int ordinal, int count) const;
  /// True when every layer is f16 in its only tier and nothing is routed: no codec, conversion, scoring or routing code
  /// runs.
  bool is_dense() const;
  /// True when some tier of some layer is in a low-rank format.
  bool has_low_rank() const;
};

}  // namespace varve
