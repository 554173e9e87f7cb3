#pragma once
// The measuring half: passages read once by the dense cache, then stored by one arm after the other.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/calibrate/calibrate.h"
#include "eval/calibrate/reference.h"

namespace varve::eval {

/// Counts tokens for the progress of a calibration.
class TokenMeter {
 public:
  TokenMeter(const CalibrateOptions& options) : report_(options.progress) {}
  void expect(int64_t tokens) { total_ += tokens; }
  /// kCancelled when the caller wants to stop.
  Status add(const std::string& what, int64_t tokens);

 private:
  std::function<bool(const std::string&, int64_t, int64_t)> report_;
  int64_t done_ = 0, total_ = 0;
};

class Arms {
 public:
  /// Reads the first prefill_tokens of each passage into a dense engine, and the eval_tokens after them for the
  /// reference. The passages must outlive it.
  static Result<Arms> create(const std::shared_ptr<model::Model>& model, std::span<const std::vector<int32_t>> passages,
                             const CalibrateOptions& options, TokenMeter& meter);

  /// One for each passage: the prefill's rows stored under `profile` with the passage's rotation seed, the rest read on
  /// top in steps of `step_tokens`, compared with dense.
  Result<std::vector<ArmDivergence>> measure(const std::string& what, const Profile& profile, int step_tokens);
  /// Codec and conversion buffers of an engine of the default step size that has stored a prefill.
  Result<size_t> scratch_bytes(const Profile& profile);

  const Engine& dense() const { return *dense_; }
  std::vector<SessionId> sessions() const;

 private:
  Arms(const CalibrateOptions& options, TokenMeter& meter) : options_(&options), meter_(&meter) {}
  Result<std::unique_ptr<Engine>> make(const Profile& profile) const;
  struct Passage {
    SessionId session = 0;  ///< of the dense engine: the prefill
    std::span<const int32_t> eval_text;
    std::unique_ptr<DenseReference> reference;
  };
  Status read(std::span<const int32_t> text);
  Result<ArmDivergence> measure(const Passage& passage, const Profile& profile, int step_tokens);

  const CalibrateOptions* options_;
  TokenMeter* meter_;
  std::shared_ptr<model::Model> model_;
  std::unique_ptr<Engine> dense_;
  std::vector<Passage> passages_;
};

/// All layers f16 but for one, whose old pages are in `format` ("k4v8"). Recent pages of that layer are in the base
/// profile's recent format, so that it has exact sinks as it will in use, or in `format` too where it has one format.
Profile single_layer_profile(const Profile& base, const PageShape& shape, int ordinal, const LayerCosts& layer,
                             const std::string& format);

}  // namespace varve::eval
