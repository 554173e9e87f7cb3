#include "model/step_timer.h"

#include <ggml.h>

#include "base/clock.h"
#include "model/barrier_annotation.h"

namespace varve::model {
namespace {

using Part = double StepTimes::*;

void run_stamp(ggml_tensor*, int thread, int, void* user) {
  if (thread != 0) return;
  auto* stamp = static_cast<StepTimer::Stamp*>(user);
  ordered_after(stamp->timer);
  stamp->timer->stamp(stamp->part);
  ordered_before(stamp->timer);
}

bool is_empty(ggml_op op) {
  return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW || op == GGML_OP_PERMUTE ||
         op == GGML_OP_TRANSPOSE;
}

}  // namespace

StepTimer::StepTimer(int threads, StepTimes* times) : times_(times), busy_(static_cast<size_t>(threads)) {
  times_->threads.resize(busy_.size());
}

void StepTimer::copy_with_stamps(ggml_context* context, ggml_cgraph* graph, ggml_cgraph* timed,
                                 std::list<Stamp>* stamps) {
  const auto add_stamp = [&](Part part) {
    Stamp& stamp = stamps->emplace_back(Stamp{this, part, 0});
    ggml_tensor* node = ggml_custom_4d(context, GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, run_stamp, 1, &stamp);
    node->data = &stamp.data;
    ggml_build_forward_expand(timed, node);
  };
  add_stamp(&StepTimes::start_s);
  // Custom nodes are the three of each attention layer, in this order.
  static constexpr Part kAttention[] = {&StepTimes::append_s, &StepTimes::partial_s, &StepTimes::merge_s};
  int customs = 0;
  Part open = nullptr;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* node = ggml_graph_node(graph, i);
    const Part part = is_empty(node->op)            ? open
                      : node->op == GGML_OP_CUSTOM  ? kAttention[customs++ % 3]
                      : node->op == GGML_OP_MUL_MAT ? &StepTimes::weights_s
                                                    : &StepTimes::other_s;
    if (open != nullptr && part != open) add_stamp(open);
    open = part;
    ggml_build_forward_expand(timed, node);
  }
  if (open != nullptr) add_stamp(open);
}

void StepTimer::begin(attention::LayerAttention& attention) {
  attention_ = &attention;
  last_ = now_s();
}

void StepTimer::end() {
  stamp(&StepTimes::start_s);
  attention_ = nullptr;
}

void StepTimer::stamp(Part part) {
  const double now = now_s();
  times_->*part += now - last_;
  last_ = now;
}

void StepTimer::append(int layer, const float* k, const float* v, int thread, int threads) {
  const double start = now_s();
  attention_->append(layer, k, v, thread, threads);
  busy_[static_cast<size_t>(thread)].times.append_s += now_s() - start;
}

void StepTimer::route(int layer, const float* q, int thread, int threads) {
  const double start = now_s();
  attention_->route(layer, q, thread, threads);
  busy_[static_cast<size_t>(thread)].times.append_s += now_s() - start;  // one node with append
}

void StepTimer::partial(int layer, const float* q, int thread, int threads) {
  const double start = now_s();
  attention_->partial(layer, q, thread, threads);
  busy_[static_cast<size_t>(thread)].times.partial_s += now_s() - start;
}

void StepTimer::merge(int layer, float* out, int thread, int threads) {
  const double start = now_s();
  attention_->merge(layer, out, thread, threads);
  busy_[static_cast<size_t>(thread)].times.merge_s += now_s() - start;
}

void StepTimer::collect() {
  for (size_t t = 0; t < busy_.size(); ++t) {
    StepTimes::Thread& sum = times_->threads[t];
    StepTimes::Thread& add = busy_[t].times;
    sum.append_s += add.append_s;
    sum.partial_s += add.partial_s;
    sum.merge_s += add.merge_s;
    sum.convert_s += add.convert_s;
    add = {};
  }
}

}  // namespace varve::model
