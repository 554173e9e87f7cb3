#pragma once
// Times the nodes of a step's graph from inside it: stamps between groups of nodes, and attention calls per thread.
// ggml puts a barrier after every node, so that a stamp of the first thread is the end of what came before on all.

#include <cstddef>
#include <list>
#include <vector>

#include "attention/layer_attention.h"
#include "varve/step_times.h"

struct ggml_cgraph;
struct ggml_context;

namespace varve::model {

class StepTimer final : public attention::LayerAttention {
 public:
  /// A node that ends a part of the graph.
  struct Stamp {
    StepTimer* timer;
    double StepTimes::*part;
    float data;  ///< of the node
  };

  /// times outlives the object.
  StepTimer(int threads, StepTimes* times);

  /// The nodes of `graph`, which has its data, in order, and a stamp wherever the part changes, added to `timed`.
  /// At most max_nodes() of `graph` nodes.
  void copy_with_stamps(ggml_context* context, ggml_cgraph* graph, ggml_cgraph* timed, std::list<Stamp>* stamps);
  static size_t max_nodes(size_t nodes) { return 2 * nodes + 2; }

  /// Around the computation of a graph with stamps.
  void begin(attention::LayerAttention& attention);
  void end();
  /// Around one thread's share of Executor::parallel.
  void add_converting(int thread, double seconds) { busy_[static_cast<size_t>(thread)].times.convert_s += seconds; }

  void append(int layer, const float* k, const float* v, int thread, int threads) override;
  void route(int layer, const float* q, int thread, int threads) override;
  void partial(int layer, const float* q, int thread, int threads) override;
  void merge(int layer, float* out, int thread, int threads) override;
  void stamp(double StepTimes::*part);

  /// Moves what the threads counted to the sums.
  void collect();

 private:
  struct alignas(64) Busy {
    StepTimes::Thread times;
  };
  StepTimes* times_;
  attention::LayerAttention* attention_ = nullptr;
  double last_ = 0;
  std::vector<Busy> busy_;
};

}  // namespace varve::model
