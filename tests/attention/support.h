#pragma once
// Builds classes, sequences and caches of random content, runs steps on real threads, and computes the answer in fp64
// over the decoded cache.

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attention/step.h"
#include "base/half.h"
#include "base/memory.h"

namespace varve::attention::test {

using format::Centre;
using format::KCodec;
using format::kTileTokens;
using format::LayerFormat;
using format::LayerGeometry;
using format::VCodec;

/// "k4v3" and a centre.
LayerFormat format_of(const std::string& name, Centre centre = Centre::kNone);

struct ClassSpec {
  /// Formats of each tier, [tier][layer]; tier 0 is the recent one.
  std::vector<std::vector<LayerFormat>> tiers;
  int q_heads = 2;
  int kv_heads = 1;
  int head_dim = 64;
  int n_rot = 64;  ///< 0: no table
  bool neox = true;
  float theta_base = 10000;
  int page_tokens = 256;
  int sink_tokens = 4;
  int window = 0;
  float softcap = 0;
  RouteOptions route = {};
};

/// One attention class with everything it points to.
class TestClass {
 public:
  explicit TestClass(const ClassSpec& spec);
  TestClass(const TestClass&) = delete;

  const ClassSpec& spec() const { return spec_; }
  const ClassGeometry& geometry() const { return geometry_; }
  const std::vector<LayerGeometry>& layers() const { return geometry_.layers; }
  const format::SlotLayout& slot(int tier) const { return slots_[static_cast<size_t>(tier)]; }
  const format::StripLayout& strip() const { return strip_; }
  const format::RotaryTable* rotary() const { return rotary_.get(); }
  bool owns_strip(int ordinal) const { return strip_.open_head_bytes[static_cast<size_t>(ordinal)] > 0; }

 private:
  ClassSpec spec_;
  std::unique_ptr<format::Rotation> rotation_;
  std::unique_ptr<format::RotaryTable> rotary_;
  std::vector<format::SlotLayout> slots_;
  format::StripLayout strip_;
  ClassGeometry geometry_;
};

/// Rows of one layer: [position][heads][head_dim].
struct LayerRows {
  std::vector<float> k, v, q;
};

/// Rows of one KV head: [position][head_dim].
struct HeadRows {
  std::vector<float> k, v;
};

/// A sequence: its true rows and its cache.
class TestSequence {
 public:
  /// Rows for `tokens` positions. Keys are a constant offset of `bias` times the signal plus noise, turned by RoPE.
  TestSequence(const TestClass& cls, int tokens, uint32_t seed, float bias = 10.0f);

  /// The first `tokens` rows become those of `other`. Before fill().
  void copy_rows(const TestSequence& other, int tokens);
  /// Fills the cache with the first `past` positions through the reference encoders of src/format. Pages that are full
  /// before `past` get tier tier_of[page % size].
  void fill(int past, const std::vector<int>& tier_of);
  /// Reserves pages (recent tier) for positions below `tokens`.
  void reserve(int tokens);
  /// Drops pages that lie wholly below `position`.
  void drop_below(int position);

  SequenceView view(int row_begin, int past, int rows);
  /// Keys and values of one KV head as a step that starts at `past` sees them, [tokens][head_dim]: exact sinks and
  /// tail, decoded pages.
  HeadRows decoded(int ordinal, int kv_head, int past) const;
  /// Softmax of (row at `position`, q_head) over them in fp64: weights of positions [*first, position].
  std::vector<double> weights(const HeadRows& rows, int ordinal, int position, int q_head, int* first) const;
  /// Attention of (row at `position`, q_head) over them in fp64. [head_dim]
  std::vector<double> expected(const HeadRows& rows, int ordinal, int position, int q_head) const;

  const TestClass& cls() const { return *cls_; }
  LayerRows& rows(int ordinal) { return rows_[static_cast<size_t>(ordinal)]; }
  const LayerRows& rows(int ordinal) const { return rows_[static_cast<size_t>(ordinal)]; }
  int tokens() const { return tokens_; }
  int pages() const { return static_cast<int>(pages_.size()); }
  uint8_t* page(int index) { return pages_[static_cast<size_t>(index)].bytes.data(); }
  const uint8_t* page(int index) const { return pages_[static_cast<size_t>(index)].bytes.data(); }
  int tier(int index) const { return pages_[static_cast<size_t>(index)].tier; }
  uint8_t* strip() { return strip_.data(); }
  /// [tokens][head_dim] of one KV head, f16-rounded.
  std::vector<float> half_rows(const std::vector<float>& rows, int kv_head, int first, int n) const;

 private:
  struct Page {
    AlignedBuffer bytes;
    int tier = 0;
  };

  void fill_page(int index, int past);
  /// The low-rank block of one layer of a full page.
  void fill_block(int index, int ordinal);
  /// k, v: [kTileTokens][head_dim] at their positions.
  void decode_page_tile(int index, int ordinal, int kv_head, int tile, float* k, float* v) const;
  void fill_strip(int past);

  const TestClass* cls_;
  int tokens_;
  std::vector<LayerRows> rows_;
  std::vector<Page> pages_;  ///< of all positions from 0 on
  int first_page_ = 0;       ///< that views show
  AlignedBuffer strip_;
};

/// Part of a step: the sequence and its new rows.
struct Part {
  TestSequence* sequence;
  int past;
  int rows;
  TestSequence* prefix = nullptr;  ///< whose slots hold the pages that end at or below prefix_tokens
  int prefix_tokens = 0;
  int full_rows = 0;
  RouteMemory* route = nullptr;
};

/// Output of every layer of a step: [layer][rows of all parts][q_heads][head_dim].
using StepOutput = std::vector<std::vector<float>>;

/// Plans and runs one step over all layers on `threads` threads.
StepOutput run_step(ClassAttention& attention, const std::vector<Part>& parts, int threads,
                    const MassRequest& mass = {});

/// Largest |got - expected| / |expected| over heads, of the given rows of a part that starts at batch row `row_begin`.
/// With `tell`, the coordinates of the worst one.
double worst_error(const StepOutput& output, const Part& part, int row_begin, const std::vector<int>& rows,
                   std::string* tell = nullptr);

/// A few rows that matter: first, last, around tile edges.
std::vector<int> sample_rows(int past, int rows, uint32_t seed);

}  // namespace varve::attention::test
