#include "attention/step.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "attention/items.h"
#include "attention/mass.h"
#include "attention/seal.h"
#include "attention/select/router.h"
#include "attention/share.h"

namespace varve::attention {
namespace {

using format::Centre;
using format::kTileTokens;
using format::LayerFormat;
using format::LayerGeometry;
using format::SlotLayout;

std::string text(int n) { return std::to_string(n); }

std::string name(const LayerGeometry& layer) { return "layer " + text(layer.layer); }

/// What every tier's layout must satisfy, the recent one included.
Status check_layout(const ClassGeometry& geometry, const SlotLayout& layout) {
  std::vector<LayerFormat> formats;
  for (const format::LayerSlot& slot : layout.layers) formats.push_back(slot.format);
  const int sink_tokens = geometry.strip != nullptr ? geometry.strip->sink_tokens : 0;
  return format::check_layout(geometry.layers, formats, layout.page_tokens, sink_tokens);
}

}  // namespace

Status check(const ClassGeometry& geometry) {
  if (geometry.recent == nullptr) return invalid_argument("the class has no recent layout");
  if (Status status = check_layout(geometry, *geometry.recent); !status.ok()) return status;
  if (const RouteOptions& r = geometry.route;
      r.pages < 0 || r.from_tokens < 0 || r.window_tokens < 1 || r.reroute_steps < 1) {
    return invalid_argument("a router of " + text(r.pages) + " pages from " + text(r.from_tokens) +
                            " tokens on, window " + text(r.window_tokens) + ", a selection every " +
                            text(r.reroute_steps) + " steps");
  }
  std::set<int> seen;
  for (const LayerGeometry& layer : geometry.layers) {
    if (!seen.insert(layer.layer).second) return invalid_argument(name(layer) + " is in the class twice");
    if (layer.group() > kernels::kMaxGroup) {
      return invalid_argument(name(layer) + " has " + text(layer.group()) + " query heads per KV head, at most " +
                              text(kernels::kMaxGroup) + " are supported");
    }
    if (layer.window < 0 || !(layer.softcap >= 0) || !std::isfinite(layer.scale)) {
      return invalid_argument(name(layer) + " has window " + text(layer.window) + ", softcap " +
                              std::to_string(layer.softcap) + ", scale " + std::to_string(layer.scale));
    }
  }
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    const LayerFormat& format = geometry.recent->layers[i].format;
    const bool direct = format::is_direct(format);
    if (format.is_low_rank()) {
      return invalid_argument(name(geometry.layers[i]) + ": recent pages are written tile by tile and cannot be " +
                              format::format_name(format));
    }
    if (direct && format.centre != Centre::kNone) {
      return invalid_argument(name(geometry.layers[i]) + " is written in place (f16) and cannot have centre " +
                              format::centre_name(format.centre));
    }
    if (direct == owns_strip(geometry.strip, static_cast<int>(i))) {
      return invalid_argument(name(geometry.layers[i]) + " in recent format " + format::format_name(format) +
                              (direct ? " must own no strip" : " needs a strip"));
    }
  }
  return {};
}

struct ClassAttention::Impl {
  struct Layer {
    int schedule = 0;
    const CentreCurve* curve = nullptr;
    const PageTurn* turn = nullptr;
  };

  Impl(ClassGeometry g, const kernels::Kernels& k, int threads)
      : geometry(std::move(g)), kernels(k), valid(check(geometry)), scratch(static_cast<size_t>(std::max(threads, 1))) {
    if (!valid.ok()) return;
    for (size_t i = 0; i < geometry.layers.size(); ++i) {
      const LayerGeometry& layer = geometry.layers[i];
      ordinals[layer.layer] = static_cast<int>(i);
      const Shape shape{layer.kv_heads, layer.group(), layer.window};
      const auto found = std::find(shapes.begin(), shapes.end(), shape);
      layers.push_back({.schedule = static_cast<int>(found - shapes.begin())});
      if (found == shapes.end()) shapes.push_back(shape);
      layers_of_shape.resize(shapes.size());
      ++layers_of_shape[static_cast<size_t>(layers.back().schedule)];
    }
    if (geometry.route.pages > 0) router.emplace(geometry.route, geometry.layers);
  }

  Status check_sequence(size_t index, const SequenceView& view);
  /// Tables of angles that the formats of the step's pages ask for.
  void make_tables();
  /// Of the step's low-rank pages; 0: there are none.
  int max_rank() const;
  Status reserve(const MassRequest& request);
  bool begin(int layer, LayerStep* step);

  const ClassGeometry geometry;
  const kernels::Kernels& kernels;
  const Status valid;
  std::map<int, int> ordinals;  ///< by model layer index
  std::vector<Layer> layers;    ///< by ordinal
  std::vector<Shape> shapes;
  std::vector<int> layers_of_shape;
  std::optional<Router> router;
  std::map<const format::RotaryTable*, CentreCurve> curves;
  std::map<const format::RotaryTable*, PageTurn> turns;
  std::set<const SlotLayout*> checked_layouts;  ///< of the step being planned

  bool planned = false;
  std::vector<SequenceState> sequences;
  std::vector<Schedule> schedules;  ///< by shape
  std::vector<SealJob> seals;
  std::vector<ThreadScratch> scratch;  ///< by thread
  AlignedBuffer tail, max, sum, out;
  PageMass mass;
  /// Next item of partial() and next job of merge(); the node that comes two before resets them.
  std::atomic<int> next_item = 0, next_job = 0;
};

Status ClassAttention::Impl::check_sequence(size_t index, const SequenceView& view) {
  const std::string who = "sequence " + std::to_string(index) + " of the step";
  if (view.rows < 0 || view.past < 0 || view.row_begin < 0) {
    return invalid_argument(who + " has " + text(view.rows) + " rows from row " + text(view.row_begin) + ", past " +
                            text(view.past));
  }
  if (view.rows == 0) return {};
  if (view.pages.empty()) return invalid_argument(who + " has no pages for " + text(view.rows) + " rows");
  const int page_tokens = geometry.recent->page_tokens;
  int expected = view.pages.front().start;
  if (expected < 0 || expected % page_tokens != 0) {
    return invalid_argument(who + ": its first page starts at " + text(expected) + ", no multiple of " +
                            text(page_tokens));
  }
  for (const PageView& page : view.pages) {
    if (page.slot == nullptr || page.layout == nullptr) {
      return invalid_argument(who + ": the page at " + text(page.start) + " has no slot or layout");
    }
    if (page.start != expected || page.layout->page_tokens != page_tokens) {
      return invalid_argument(who + ": a page of " + text(page.layout->page_tokens) + " tokens at " + text(page.start) +
                              " where one of " + text(page_tokens) + " at " + text(expected) + " is due");
    }
    if (page.start + page_tokens > view.past && page.layout != geometry.recent) {
      return invalid_argument(who + ": the page at " + text(page.start) + " is to be written from position " +
                              text(view.past) + " on but is not in the recent layout");
    }
    if (!checked_layouts.contains(page.layout)) {
      if (Status status = check_layout(geometry, *page.layout); !status.ok()) return status;
      checked_layouts.insert(page.layout);
    }
    expected += page_tokens;
  }
  if (expected < view.past + view.rows) {
    return invalid_argument(who + ": its pages end at " + text(expected) + ", its rows at " +
                            text(view.past + view.rows));
  }
  for (size_t i = 0; i < geometry.layers.size(); ++i) {
    const int first = first_key(view.past, geometry.layers[i].window);
    if (view.pages.front().start > first) {
      return invalid_argument(who + ": its pages start at " + text(view.pages.front().start) + " but " +
                              name(geometry.layers[i]) + " attends from position " + text(first));
    }
    if (view.strip == nullptr && owns_strip(geometry.strip, static_cast<int>(i))) {
      return invalid_argument(who + " has no strip but " + name(geometry.layers[i]) + " needs one");
    }
  }
  return {};
}

void ClassAttention::Impl::make_tables() {
  const int tiles = geometry.recent->page_tokens / kTileTokens;
  for (size_t i = 0; i < layers.size(); ++i) {
    const format::RotaryTable* rotary = geometry.layers[i].head.rotary;
    if (rotary == nullptr) continue;
    Layer& layer = layers[i];
    for (const SlotLayout* layout : checked_layouts) {
      const LayerFormat& format = layout->layers[i].format;
      if (format.centre == Centre::kRotary && layer.curve == nullptr) {
        layer.curve = &curves.try_emplace(rotary, *rotary, tiles).first->second;
      }
      if (format.is_low_rank() && !format.low_rank.rotated && layer.turn == nullptr) {
        layer.turn = &turns.try_emplace(rotary, *rotary, tiles).first->second;
      }
    }
  }
}

int ClassAttention::Impl::max_rank() const {
  int rank = 0;
  for (const SlotLayout* layout : checked_layouts) {
    for (const format::LayerSlot& slot : layout->layers) rank = std::max(rank, slot.format.low_rank.rank);
  }
  return rank;
}

Status ClassAttention::Impl::reserve(const MassRequest& request) {
  bool prefill = false;
  size_t scratch_tokens = 0;
  for (const SequenceState& state : sequences) {
    prefill |= state.view.rows > kDecodeRows;
    if (!state.tail_in_strip) scratch_tokens += static_cast<size_t>(state.tail_tokens());
  }
  size_t tail_bytes = 0, slots = 0, out_floats = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerGeometry& layer = geometry.layers[i];
    const auto head_dim = static_cast<size_t>(layer.head.head_dim);
    const Schedule& schedule = schedules[static_cast<size_t>(layers[i].schedule)];
    if (owns_strip(geometry.strip, static_cast<int>(i))) {
      tail_bytes =
          std::max(tail_bytes, scratch_tokens * 2 * static_cast<size_t>(layer.kv_heads) * head_dim * sizeof(uint16_t));
    }
    slots = std::max(slots, schedule.slots);
    out_floats = std::max(out_floats, schedule.slots * head_dim);
  }
  const auto fit = [](AlignedBuffer* buffer, size_t bytes) {
    if (bytes > buffer->size()) *buffer = AlignedBuffer(bytes);
    return bytes == 0 || buffer->data() != nullptr;
  };
  int item_heads = router ? kernels::kMaxGroup : 0;
  for (const Schedule& schedule : schedules) {
    for (const Item& item : schedule.items) item_heads = std::max(item_heads, item.units * schedule.shape.group);
  }
  bool ok = fit(&tail, tail_bytes) && fit(&max, slots * sizeof(float)) && fit(&sum, slots * sizeof(float)) &&
            fit(&out, out_floats * sizeof(float)) && mass.plan(request, sequences, schedules);
  for (ThreadScratch& s : scratch) ok = ok && s.reserve(geometry.layers, prefill, item_heads, max_rank());
  ok = ok && (!router || router->reserve());
  if (ok) return {};
  return resource_exhausted("no memory for a step's attention: " + std::to_string(tail_bytes) + " bytes of tails, " +
                            std::to_string(out_floats * sizeof(float)) + " bytes of partial results");
}

bool ClassAttention::Impl::begin(int layer, LayerStep* step) {
  const auto found = ordinals.find(layer);
  if (!planned || found == ordinals.end()) return false;
  const auto ordinal = static_cast<size_t>(found->second);
  step->layer = &geometry.layers[ordinal];
  step->ordinal = found->second;
  step->kernels = &kernels;
  step->curve = layers[ordinal].curve;
  step->turn = layers[ordinal].turn;
  step->strip = geometry.strip;
  step->sequences = sequences;
  step->schedule = &schedules[static_cast<size_t>(layers[ordinal].schedule)];
  step->tail_scratch = reinterpret_cast<uint16_t*>(tail.data());
  step->max = reinterpret_cast<float*>(max.data());
  step->sum = reinterpret_cast<float*>(sum.data());
  step->out = reinterpret_cast<float*>(out.data());
  if (mass.samples(step->ordinal)) step->tile_mass = mass.tiles();
  if (router) step->selected = router->selected();
  return true;
}

ClassAttention::ClassAttention(ClassGeometry geometry, const kernels::Kernels& kernels, int threads)
    : impl_(std::make_unique<Impl>(std::move(geometry), kernels, threads)) {}

ClassAttention::~ClassAttention() = default;

Status ClassAttention::plan(std::span<const SequenceView> views, const MassRequest& mass) {
  Impl& impl = *impl_;
  impl.planned = false;
  if (!impl.valid.ok()) return impl.valid;
  if (mass.rows < 0 || mass.layer_stride < 1) {
    return invalid_argument("page mass of " + text(mass.rows) + " rows in every layer of stride " +
                            text(mass.layer_stride));
  }
  impl.checked_layouts.clear();
  for (size_t s = 0; s < views.size(); ++s) {
    if (Status status = impl.check_sequence(s, views[s]); !status.ok()) return status;
  }
  impl.make_tables();

  impl.sequences.clear();
  std::vector<SequenceRows> rows;
  size_t tail_offset = 0;
  for (const SequenceView& view : views) {
    SequenceState state;
    state.view = view;
    state.tail_start = view.past / kTileTokens * kTileTokens;
    state.tail_in_strip = view.past % kTileTokens + view.rows <= kTileTokens;
    state.tail_offset = tail_offset;
    if (!state.tail_in_strip) tail_offset += static_cast<size_t>(state.tail_tokens());
    impl.sequences.push_back(std::move(state));
    rows.push_back({view.rows, view.past, std::min(mass.rows, view.rows)});
  }
  impl.schedules.clear();
  if (impl.router) impl.router->begin(impl.sequences);
  for (const Shape& shape : impl.shapes) {
    impl.schedules.push_back(make_schedule(shape, rows));
    if (impl.router) impl.router->mark(impl.sequences, &impl.schedules.back());
    join_items(impl.sequences, &impl.schedules.back());
  }
  impl.seals = seal_jobs(impl.sequences, impl.geometry.recent->page_tokens);
  if (Status status = impl.reserve(mass); !status.ok()) return status;
  impl.next_item = 0;
  impl.next_job = 0;
  impl.planned = true;
  return {};
}

void ClassAttention::append(int layer, const float* k, const float* v, int thread, int threads) {
  LayerStep step;
  if (!impl_->begin(layer, &step)) return;
  if (thread == 0) {  // both other nodes are idle here: a barrier lies before and after this one
    impl_->next_item.store(0, std::memory_order_relaxed);
    impl_->next_job.store(0, std::memory_order_relaxed);
  }
  append_rows(step, k, v, thread, threads);
}

void ClassAttention::route(int layer, const float* q, int thread, int) {
  LayerStep step;
  if (!impl_->router || !impl_->begin(layer, &step)) return;
  step.q = q;
  const auto schedule = static_cast<size_t>(impl_->layers[static_cast<size_t>(step.ordinal)].schedule);
  impl_->router->run(step, schedule, impl_->scratch[static_cast<size_t>(thread)]);
}

void ClassAttention::partial(int layer, const float* q, int thread, int) {
  LayerStep step;
  if (!impl_->begin(layer, &step)) return;
  step.q = q;
  if (thread == 0 && impl_->router) impl_->router->begin_layer();
  ThreadScratch& scratch = impl_->scratch[static_cast<size_t>(thread)];
  scratch.new_layer();
  const int items = static_cast<int>(step.schedule->items.size());
  for (int i = impl_->next_item.fetch_add(1, std::memory_order_relaxed); i < items;
       i = impl_->next_item.fetch_add(1, std::memory_order_relaxed)) {
    const Item& item = step.schedule->items[static_cast<size_t>(i)];
    if (step.schedule->units[static_cast<size_t>(item.unit)].decode) {
      run_decode_item(step, item, scratch);
    } else {
      run_prefill_item(step, item, scratch);
    }
  }
}

void ClassAttention::merge(int layer, float* out, int thread, int) {
  LayerStep step;
  if (!impl_->begin(layer, &step)) return;
  ThreadScratch& scratch = impl_->scratch[static_cast<size_t>(thread)];
  const int kv_heads = step.layer->kv_heads;
  // Seals first: they are the longer jobs.
  const int seals = owns_strip(step.strip, step.ordinal) ? static_cast<int>(impl_->seals.size()) * kv_heads : 0;
  const int jobs = seals + static_cast<int>(step.schedule->units.size());
  const auto schedule = static_cast<size_t>(impl_->layers[static_cast<size_t>(step.ordinal)].schedule);
  for (int i = impl_->next_job.fetch_add(1, std::memory_order_relaxed); i < jobs;
       i = impl_->next_job.fetch_add(1, std::memory_order_relaxed)) {
    if (i < seals) {
      run_seal_job(step, impl_->seals[static_cast<size_t>(i / kv_heads)], i % kv_heads, impl_->geometry.encode,
                   scratch);
    } else {
      const auto unit = static_cast<size_t>(i - seals);
      merge_unit(step, step.schedule->units[unit], out);
      if (step.tile_mass != nullptr) impl_->mass.add_unit(step, schedule, unit);
    }
  }
}

void ClassAttention::seal(int layer, int thread, int) {
  LayerStep step;
  if (!impl_->begin(layer, &step) || !owns_strip(step.strip, step.ordinal)) return;
  const int kv_heads = step.layer->kv_heads;
  const int jobs = static_cast<int>(impl_->seals.size()) * kv_heads;
  for (int i = impl_->next_job.fetch_add(1, std::memory_order_relaxed); i < jobs;
       i = impl_->next_job.fetch_add(1, std::memory_order_relaxed)) {
    run_seal_job(step, impl_->seals[static_cast<size_t>(i / kv_heads)], i % kv_heads, impl_->geometry.encode,
                 impl_->scratch[static_cast<size_t>(thread)]);
  }
}

std::span<const float> ClassAttention::page_mass(size_t sequence) const { return impl_->mass.shares(sequence); }

int ClassAttention::mass_skipped(size_t sequence) const { return impl_->mass.skipped(sequence); }

ReadPlan ClassAttention::stats() const {
  ReadPlan sum;
  if (!impl_->planned) return sum;
  for (const Impl::Layer& layer : impl_->layers) {
    const ReadPlan& reads = impl_->schedules[static_cast<size_t>(layer.schedule)].reads;
    sum.shared_items += reads.shared_items;
    sum.tiles_requested += reads.tiles_requested;
    sum.tiles_read += reads.tiles_read;
  }
  const size_t skipped = route_stats().tiles_skipped;  // by rows that share no tiles
  sum.tiles_requested -= skipped;
  sum.tiles_read -= skipped;
  return sum;
}

RouteStats ClassAttention::route_stats() const {
  if (!impl_->planned || !impl_->router) return {};
  return impl_->router->stats(impl_->schedules, impl_->layers_of_shape, impl_->sequences);
}

size_t ClassAttention::scratch_bytes() const {
  size_t bytes = impl_->tail.size();
  for (const ThreadScratch& scratch : impl_->scratch) bytes += scratch.codec_bytes();
  return bytes;
}

size_t ClassAttention::activation_bytes() const {
  size_t bytes = impl_->max.size() + impl_->sum.size() + impl_->out.size() + impl_->mass.bytes();
  if (impl_->router) bytes += impl_->router->bytes();
  for (const ThreadScratch& scratch : impl_->scratch) bytes += scratch.work_bytes();
  return bytes;
}

}  // namespace varve::attention
