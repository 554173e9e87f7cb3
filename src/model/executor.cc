#include "model/executor.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <list>

#include "base/clock.h"
#include "base/lap.h"
#include "model/arch/architecture.h"
#include "model/arch/blocks.h"
#include "model/barrier_annotation.h"
#include "model/ggml_guard.h"
#include "model/hparams.h"
#include "model/step_timer.h"
#include "model/weights.h"

namespace varve::model {
namespace {

/// Graphs kept, most recently used first. Serving sees a handful of batch sizes, each with one or two output counts.
constexpr size_t kMostGraphs = 16;
constexpr int kNodesPerLayer = 64;  // the largest block (gemma3) has 39, and 14 more where rows are wide in part
constexpr int kNodesOutsideLayers = 32;

template <typename T, auto Free>
struct Deleter {
  void operator()(T* p) const { Free(p); }
};
using Context = std::unique_ptr<ggml_context, Deleter<ggml_context, ggml_free>>;
using Backend = std::unique_ptr<ggml_backend, Deleter<ggml_backend, ggml_backend_free>>;
using ThreadPool = std::unique_ptr<ggml_threadpool, Deleter<ggml_threadpool, ggml_threadpool_free>>;
using Allocator = std::unique_ptr<ggml_gallocr, Deleter<ggml_gallocr, ggml_gallocr_free>>;

/// A context that holds tensor headers and one graph, no data.
Context new_context(size_t nodes) {
  return Context(ggml_init({/*mem_size=*/ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false),
                            /*mem_buffer=*/nullptr, /*no_alloc=*/true}));
}

struct StepGraph {
  StepSize size;
  Context context;
  ggml_cgraph* graph = nullptr;
  std::vector<AttentionNode> nodes;
  ggml_tensor *tokens = nullptr, *positions = nullptr, *wanted_rows = nullptr, *logits = nullptr;
  // The same nodes with stamps between them, made when steps are timed.
  Context timed_context;
  ggml_cgraph* timed = nullptr;
  std::list<StepTimer::Stamp> stamps;
};

std::string rows_and_outputs(const StepSize& size) {
  return std::to_string(size.rows) + " rows and " + std::to_string(size.outputs) + " outputs";
}

int count_own_products(const Weights& weights, const WeightProduct& product) {
  int n = product.takes(weights.output);
  for (const LayerWeights& l : weights.layers) {
    for (const ggml_tensor* w : {l.wq, l.wk, l.wv, l.wo, l.gate, l.up, l.down}) n += product.takes(w);
  }
  return n;
}

}  // namespace

struct Executor::Impl {
  std::shared_ptr<Model> model;
  Options options;
  // Destroyed bottom up: graphs before the buffer they point into, the backend before its pool.
  std::unique_ptr<WeightProduct> product;
  ProductNode product_node;
  int own_products = 0;  ///< weight matrices that `product` takes
  ThreadPool pool;
  Backend backend;
  Allocator allocator;  ///< one buffer for all graphs: they never run at the same time
  size_t buffer_bytes = 0;
  std::list<StepGraph> graphs;
  attention::LayerAttention* attention = nullptr;  ///< of the step that runs now
  const std::function<void(int, int)>* parallel_fn = nullptr;
  Context parallel_context;
  ggml_cgraph* parallel_graph = nullptr;
  std::vector<float> parallel_result;
  StepTimes* times = nullptr;
  std::unique_ptr<StepTimer> timer;  ///< with times

  StepGraph build(const StepSize& size);
  Status reserve(const StepSize& size);
  Result<StepGraph*> find(const StepSize& size);
  void build_parallel();
  void build_timed(StepGraph& g);
  void run_parallel(int thread, int threads);
  Status check(const StepInput& input, size_t logits) const;
};

StepGraph Executor::Impl::build(const StepSize& size) {
  const HParams& h = model->hparams();
  const size_t most_nodes = static_cast<size_t>(h.layers) * kNodesPerLayer + kNodesOutsideLayers;
  StepGraph g;
  g.size = size;
  g.context = new_context(most_nodes);
  g.graph = ggml_new_graph_custom(g.context.get(), most_nodes, false);
  for (int l = 0; l < h.layers; ++l) g.nodes.push_back({&attention, l});
  GraphBuilder builder(g.context.get(), g.graph, h, model->weights(), size, g.nodes.data(), &product_node);
  find_architecture(h.architecture)->build(builder);
  g.tokens = builder.tokens;
  g.positions = builder.positions;
  g.wanted_rows = builder.wanted_rows;
  g.logits = builder.logits;
  return g;
}

Status Executor::Impl::reserve(const StepSize& size) {
  StepGraph g = build(size);
  if (!ggml_gallocr_reserve(allocator.get(), g.graph)) {
    return resource_exhausted("no memory for the activations of a step of " + rows_and_outputs(size));
  }
  buffer_bytes = ggml_gallocr_get_buffer_size(allocator.get(), 0);
  return Status();
}

Result<StepGraph*> Executor::Impl::find(const StepSize& size) {
  for (auto it = graphs.begin(); it != graphs.end(); ++it) {
    if (it->size == size) {
      graphs.splice(graphs.begin(), graphs, it);
      return &graphs.front();
    }
  }
  StepGraph g = build(size);
  if (!ggml_gallocr_alloc_graph(allocator.get(), g.graph)) {
    graphs.clear();  // a failed growth has already freed the buffer they point into
    return resource_exhausted("no memory for the activations of a step of " + rows_and_outputs(size));
  }
  if (const size_t now = ggml_gallocr_get_buffer_size(allocator.get(), 0); now != buffer_bytes) {
    graphs.clear();  // the buffer moved
    buffer_bytes = now;
  }
  if (graphs.size() >= kMostGraphs) graphs.pop_back();
  graphs.push_front(std::move(g));
  return &graphs.front();
}

void Executor::Impl::run_parallel(int thread, int threads) {
  const double start = timer != nullptr ? now_s() : 0;
  (*parallel_fn)(thread, threads);
  if (timer != nullptr) timer->add_converting(thread, now_s() - start);
}

void Executor::Impl::build_parallel() {
  parallel_context = new_context(4);
  parallel_graph = ggml_new_graph_custom(parallel_context.get(), 4, false);
  parallel_result.resize(1);
  ggml_tensor* node = ggml_custom_4d(
      parallel_context.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
      [](ggml_tensor*, int thread, int threads, void* self) {
        ordered_after(self);
        static_cast<Impl*>(self)->run_parallel(thread, threads);
        ordered_before(self);
      },
      GGML_N_TASKS_MAX, this);
  node->data = parallel_result.data();
  ggml_build_forward_expand(parallel_graph, node);
}

void Executor::Impl::build_timed(StepGraph& g) {
  const size_t most_nodes = StepTimer::max_nodes(static_cast<size_t>(ggml_graph_n_nodes(g.graph)));
  // Hashing wants room for leafs as well.
  const size_t room = most_nodes + static_cast<size_t>(ggml_graph_size(g.graph));
  g.timed_context = new_context(room);
  g.timed = ggml_new_graph_custom(g.timed_context.get(), room, false);
  timer->copy_with_stamps(g.timed_context.get(), g.graph, g.timed, &g.stamps);
}

Status Executor::Impl::check(const StepInput& input, size_t logits) const {
  const size_t rows = input.tokens.size();
  const ModelInfo& info = model->info();
  if (rows == 0 || rows > static_cast<size_t>(options.max_rows)) {
    return invalid_argument("a step has " + std::to_string(rows) + " rows, must be between 1 and " +
                            std::to_string(options.max_rows));
  }
  if (input.positions.size() != rows) {
    return invalid_argument("a step has " + std::to_string(rows) + " tokens and " +
                            std::to_string(input.positions.size()) + " positions");
  }
  for (size_t i = 0; i < rows; ++i) {
    if (input.tokens[i] < 0 || input.tokens[i] >= info.vocabulary) {
      return invalid_argument("token " + std::to_string(input.tokens[i]) + " of row " + std::to_string(i) +
                              " is outside the vocabulary of " + std::to_string(info.vocabulary));
    }
    if (input.positions[i] < 0) {
      return invalid_argument("position " + std::to_string(input.positions[i]) + " of row " + std::to_string(i) +
                              " is negative");
    }
  }
  for (size_t i = 0; i < input.output_rows.size(); ++i) {
    const int32_t row = input.output_rows[i];
    if (row < 0 || static_cast<size_t>(row) >= rows || (i > 0 && row <= input.output_rows[i - 1])) {
      return invalid_argument("output row " + std::to_string(row) + " is not ascending within " + std::to_string(rows) +
                              " rows");
    }
  }
  const struct {
    const char* what;
    int wide;
    size_t most;
  } wide[] = {{"rows", input.wide_rows, rows}, {"output rows", input.wide_outputs, input.output_rows.size()}};
  for (const auto& [what, n, most] : wide) {
    if (n != 0 && (n < WeightProduct::kLeastRows || static_cast<size_t>(n) > most)) {
      return invalid_argument(std::to_string(n) + " wide " + what + " of " + std::to_string(most) +
                              "; it must be 0 or at least " + std::to_string(WeightProduct::kLeastRows));
    }
  }
  if (const size_t wanted = input.output_rows.size() * static_cast<size_t>(info.vocabulary); logits != wanted) {
    return invalid_argument("room for " + std::to_string(logits) + " logits, the step gives " + std::to_string(wanted));
  }
  return Status();
}

Executor::Executor() : impl_(std::make_unique<Impl>()) {}
Executor::~Executor() = default;

Result<std::unique_ptr<Executor>> Executor::create(std::shared_ptr<Model> model, const Options& options) {
  if (model == nullptr || model->weights().layers.empty()) {
    return invalid_argument("an executor needs a model with weights");
  }
  if (options.threads < 1 || options.threads > GGML_MAX_N_THREADS) {
    return invalid_argument(std::to_string(options.threads) + " threads, must be between 1 and " +
                            std::to_string(GGML_MAX_N_THREADS));
  }
  if (options.max_rows < 1 || options.max_rows > (1 << 20)) {
    return invalid_argument("max_rows is " + std::to_string(options.max_rows) + ", must be between 1 and 1048576");
  }
  std::unique_ptr<Executor> executor(new Executor);
  Impl& impl = *executor->impl_;
  impl.model = std::move(model);
  impl.options = options;
  const kernels::Kernels& kernels = options.kernels != nullptr ? *options.kernels : *kernels::available().front();
  impl.product = std::make_unique<WeightProduct>(options.weight_gemm, kernels, options.threads);
  if (Status s = impl.product->check(); !s.ok()) return s;
  impl.product_node = {impl.product.get(), &impl.attention};
  impl.own_products = count_own_products(impl.model->weights(), *impl.product);
  const Status built = guarded("executor", [&] {
    ggml_threadpool_params pool = ggml_threadpool_params_default(options.threads);
    // A few milliseconds of polling bridge the gap between two decode steps; then idle threads sleep: a serving process
    // must not burn its cores.
    pool.poll = 1;
    impl.pool.reset(ggml_threadpool_new(&pool));
    impl.backend.reset(ggml_backend_cpu_init());
    impl.allocator.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    if (impl.pool == nullptr || impl.backend == nullptr || impl.allocator == nullptr) {
      return resource_exhausted("cannot start a pool of " + std::to_string(options.threads) + " threads");
    }
    ggml_backend_cpu_set_n_threads(impl.backend.get(), options.threads);
    ggml_backend_cpu_set_threadpool(impl.backend.get(), impl.pool.get());
    impl.build_parallel();
    const bool wide = impl.own_products > 0 && options.max_rows >= WeightProduct::kLeastRows;
    return impl.reserve({.rows = options.max_rows, .outputs = 1, .wide_rows = wide ? options.max_rows : 0});
  });
  if (!built.ok()) return built;
  return executor;
}

Status Executor::run(const StepInput& input, attention::LayerAttention& attention, std::span<float> logits) {
  Impl& impl = *impl_;
  if (Status s = impl.check(input, logits.size()); !s.ok()) return s;
  Lap lap(impl.times);
  StepGraph* g = nullptr;
  const Status prepared = guarded("step graph", [&] {
    StepSize size{static_cast<int>(input.tokens.size()), static_cast<int>(input.output_rows.size())};
    if (impl.own_products > 0) {
      size.wide_rows = input.wide_rows;
      size.wide_outputs = input.wide_outputs;
    }
    Result<StepGraph*> found = impl.find(size);
    if (!found.ok()) return found.status();
    g = *found;
    if (impl.timer != nullptr && g->timed == nullptr) impl.build_timed(*g);
    return Status();
  });
  if (!prepared.ok()) return prepared;

  std::memcpy(g->tokens->data, input.tokens.data(), input.tokens.size_bytes());
  std::memcpy(g->positions->data, input.positions.data(), input.positions.size_bytes());
  if (g->wanted_rows != nullptr) {
    std::memcpy(g->wanted_rows->data, input.output_rows.data(), input.output_rows.size_bytes());
  }
  lap(&StepTimes::prepare_s);
  impl.attention = impl.timer != nullptr ? impl.timer.get() : &attention;
  if (impl.timer != nullptr) impl.timer->begin(attention);
  ordered_before(impl.attention);
  const ggml_status status =
      ggml_backend_graph_compute(impl.backend.get(), impl.timer != nullptr ? g->timed : g->graph);
  ordered_after(impl.attention);
  impl.attention = nullptr;
  if (impl.timer != nullptr) {
    impl.timer->end();
    impl.timer->collect();
    lap.skip();
  }
  if (status == GGML_STATUS_ALLOC_FAILED) {
    return resource_exhausted("no work memory for a step of " + rows_and_outputs(g->size));
  }
  if (status != GGML_STATUS_SUCCESS) return internal_error(std::string("step: ") + ggml_status_to_string(status));
  if (g->logits != nullptr) std::memcpy(logits.data(), g->logits->data, logits.size_bytes());
  lap(&StepTimes::output_s);
  return Status();
}

void Executor::parallel(const std::function<void(int, int)>& fn) {
  impl_->parallel_fn = &fn;
  ordered_before(impl_.get());
  ggml_backend_graph_compute(impl_->backend.get(), impl_->parallel_graph);
  ordered_after(impl_.get());
  impl_->parallel_fn = nullptr;
}

void Executor::time_steps(StepTimes* times) {
  impl_->graphs.clear();  // stamps know the timer
  impl_->times = times;
  impl_->timer = times != nullptr ? std::make_unique<StepTimer>(impl_->options.threads, times) : nullptr;
}

int Executor::threads() const { return impl_->options.threads; }
size_t Executor::compute_bytes() const { return impl_->buffer_bytes + impl_->product->scratch_bytes(); }

int Executor::own_products() const { return impl_->own_products; }

}  // namespace varve::model
