#include "engine/generate.h"

#include <algorithm>

#include "base/clock.h"
#include "engine/speculation/draft_length.h"
#include "engine/speculation/rejection.h"
#include "engine/text_stream.h"
#include "model/text.h"

namespace varve::engine {
namespace {

/// The answer in the making: what is emitted, and the rows of logits that its next tokens come from.
class Answer {
 public:
  Answer(Engine& engine, SessionId session, model::Sampler& sampler, const GenerateOptions& options)
      : engine_(engine),
        session_(session),
        sampler_(sampler),
        options_(options),
        stream_(options.stops),
        length_(options.speculation.draft_tokens, options.speculation.row_cost),
        vocabulary_(static_cast<size_t>(engine.vocabulary())) {}

  Result<Generation> run(std::span<const float> first_logits) {
    const double start = now_s();
    if (Status s = begin(first_logits); !s.ok()) return s;
    for (bool first = true; !done_; first = false) {
      if (Status s = read_rows(first ? start : 0); !s.ok()) return s;
      if (done_) break;
      const double step_start = now_s();
      if (Status s = step(); !s.ok()) return s;
      const double step_s = now_s() - step_start;
      out_.decode_s += step_s;
      out_.worst_step_s = std::max(out_.worst_step_s, step_s);
    }
    show(stream_.finish());
    if (drafter() != nullptr) out_.speculation.draft_kv_bytes = drafter()->kv_bytes();
    return std::move(out_);
  }

 private:
  Drafter* drafter() const { return options_.speculation.drafter; }
  bool contrasts() const { return options_.contrast.weight > 0 && out_.tokens < options_.contrast.tokens; }

  Status begin(std::span<const float> first_logits) {
    logits_.assign(first_logits.begin(), first_logits.end());
    if (options_.contrast.weight > 0) {
      prior_logits_.assign(options_.contrast.prior_logits.begin(), options_.contrast.prior_logits.end());
      if (prior_logits_.size() != logits_.size()) {
        return invalid_argument("contrast: " + std::to_string(prior_logits_.size()) + " logits of the prior beside " +
                                std::to_string(logits_.size()));
      }
    }
    out_.reason = StopReason::kMaxTokens;
    done_ = options_.max_tokens < 1;
    if (drafter() == nullptr || done_) return {};
    out_.speculation.drafter = drafter()->name();
    const std::span<const int32_t> held = engine_.tokens(session_);
    history_.assign(held.begin(), held.end());
    return drafter()->begin(history_);
  }

  /// Emits a token from each row of logits as long as the next row was computed for that token, then takes back what
  /// was fed in vain.
  Status read_rows(double call_start) {
    size_t row = 0, right = 0;
    while (true) {
      const auto verdict = choose(row);
      if (!verdict.ok()) return verdict.status();
      if (out_.tokens++ == 0) out_.first_token_s = now_s() - call_start;
      if (Status s = emit(verdict->token); !s.ok()) return s;
      right += verdict->accepted;
      if (done_ || !verdict->accepted) break;
      ++row;
    }
    const size_t drafted = draft_.tokens.size();
    if (drafted == 0) return {};
    out_.speculation.accepted += right;
    length_.verified(static_cast<int>(drafted), static_cast<int>(right));
    const double start = now_s();
    const Status s = take_back(drafted - row);
    out_.decode_s += now_s() - start;
    return s;
  }

  /// The next token, from a row of logits. Accepted: it is the draft that the next row was computed for.
  Result<Verdict> choose(size_t row) {
    const std::span<float> logits = std::span(logits_).subspan(row * vocabulary_, vocabulary_);
    if (contrasts()) {
      apply_contrast(logits, std::span(prior_logits_).subspan(row * vocabulary_, vocabulary_),
                     options_.contrast.weight);
      ++out_.contrasted;
    }
    if (row < draft_.drawn_from.size()) {
      const auto wanted = sampler_.distribution(logits);
      if (!wanted.ok()) return wanted.status();
      const double u_accept = sampler_.uniform(), u_draw = sampler_.uniform();
      return judge(*wanted, draft_.drawn_from[row], draft_.tokens[row], u_accept, u_draw);
    }
    // For a draft x that was chosen, q is 1 at x: x is accepted with p(x), else the rest of p is drawn from. Drawing
    // from p and looking whether it is x is the same, and draws what is drawn without drafts.
    const auto token = sampler_.sample(logits);
    if (!token.ok()) return token.status();
    return Verdict{row < draft_.tokens.size() && draft_.tokens[row] == *token, *token};
  }

  Status emit(int32_t token) {
    if (Status s = sampler_.accept(token); !s.ok()) return s;
    last_ = token;
    if (drafter() != nullptr) history_.push_back(token);
    const model::Model& model = *engine_.model();
    if (model::is_end_of_generation(model, token)) return stop(StopReason::kEnd);
    const auto piece = model::piece(model, token, false);
    if (!piece.ok()) return piece.status();
    show(stream_.push(*piece));
    if (!go_on_) return stop(StopReason::kCaller);
    if (stream_.stopped()) return stop(StopReason::kStopString);
    if (out_.tokens == options_.max_tokens) return stop(StopReason::kMaxTokens);
    return {};
  }

  Status stop(StopReason reason) {
    done_ = true;
    out_.reason = reason;
    return {};
  }

  void show(const std::string& text) {
    out_.text += text;
    if (!text.empty() && options_.on_text) go_on_ = options_.on_text(text);
  }

  /// Forgets the last `tokens` that were fed, in every session that read them.
  Status take_back(size_t tokens) {
    if (tokens == 0) return {};
    for (const SessionId id : {session_, prior_fed_ ? options_.contrast.prior : SessionId{0}}) {
      if (id == 0) continue;
      const int wanted = static_cast<int>(engine_.tokens(id).size() - tokens);
      const auto kept = engine_.truncate(id, wanted);
      if (!kept.ok()) return kept.status();
      if (*kept != wanted) {
        return internal_error("drafts were fed beyond what can be taken back: " + std::to_string(wanted) +
                              " tokens wanted, " + std::to_string(*kept) + " kept");
      }
    }
    return {};
  }

  Status step() {
    if (int64_t(engine_.tokens(session_).size()) == engine_.context_tokens()) return stop(StopReason::kContextFull);
    if (Status s = make_draft(); !s.ok()) return s;
    Status s = feed();
    if (s.code() == StatusCode::kResourceExhausted && !draft_.tokens.empty()) {
      without_drafts("memory");
      s = feed();
    }
    if (!s.ok()) return s;
    ++out_.speculation.steps;
    out_.speculation.drafted += draft_.tokens.size();
    return {};
  }

  void without_drafts(const char* reason) {
    draft_.clear();
    ++out_.speculation.without[reason];
  }

  /// Fills draft_ with what the next step should verify.
  Status make_draft() {
    draft_.clear();
    if (drafter() == nullptr) return {};
    // A step gives a token more than it has drafts.
    const int left = options_.max_tokens - out_.tokens - 1;
    if (left < 1) return without_drafts("limit"), Status();
    const int room = this->room() - 1;
    if (room < 1) return without_drafts("edge"), Status();
    const int wanted = length_.next();
    if (wanted < 1) return without_drafts("paused"), Status();
    const double start = now_s();
    const Status s = drafter()->draft(history_, std::min({wanted, left, room}), draft_);
    out_.speculation.draft_s += now_s() - start;
    if (s.code() == StatusCode::kResourceExhausted) return without_drafts("draft_memory"), Status();
    if (!s.ok()) return s;
    // What would come after an end of the answer is not asked, and the end itself needs no row of its own.
    const auto end = std::find_if(draft_.tokens.begin(), draft_.tokens.end(),
                                  [&](int32_t token) { return model::is_end_of_generation(*engine_.model(), token); });
    const bool ends = end != draft_.tokens.end();
    draft_.resize(static_cast<size_t>(end - draft_.tokens.begin()));
    if (draft_.tokens.empty()) without_drafts(ends ? "end" : drafter()->reason());
    return {};
  }

  /// Rows that the next step may have.
  int room() const {
    const int own = engine_.revocable_tokens(session_, 1);
    if (!contrasts()) return own;
    return std::min({own, engine_.revocable_tokens(options_.contrast.prior, 1), engine_.chunk_tokens() / 2});
  }

  /// One step: the last token and the drafts after it.
  Status feed() {
    fed_.assign(1, last_);
    fed_.insert(fed_.end(), draft_.tokens.begin(), draft_.tokens.end());
    std::vector<Feed> feeds = {{session_, fed_, Logits::kAll}};
    prior_fed_ = contrasts();
    if (prior_fed_) feeds.push_back({options_.contrast.prior, fed_, Logits::kAll});
    if (Status s = engine_.step(feeds, logits_); !s.ok()) return s;
    if (!prior_fed_) return {};
    const auto prior = logits_.begin() + static_cast<ptrdiff_t>(fed_.size() * vocabulary_);
    prior_logits_.assign(prior, logits_.end());
    logits_.erase(prior, logits_.end());
    return {};
  }

  Engine& engine_;
  const SessionId session_;
  model::Sampler& sampler_;
  const GenerateOptions& options_;
  TextStream stream_;
  DraftLength length_;
  const size_t vocabulary_;
  Generation out_;
  bool done_ = false, go_on_ = true;
  int32_t last_ = 0;              ///< the last token emitted; not fed yet
  std::vector<int32_t> history_;  ///< the session's tokens and `last_`; kept only for a drafter
  Draft draft_;                   ///< what the last step verified after the token it had to feed
  std::vector<int32_t> fed_;
  bool prior_fed_ = false;           ///< the last step was fed to the prior too
  std::vector<float> logits_;        ///< [1 + drafts][vocabulary]
  std::vector<float> prior_logits_;  ///< the prior's rows beside them, while contrast lasts
};

}  // namespace

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd: return "end";
    case StopReason::kStopString: return "stop";
    case StopReason::kMaxTokens: return "length";
    case StopReason::kContextFull: return "context";
    case StopReason::kCaller: return "interrupted";
  }
  return "end";
}

Status check_speculation(const Speculation& speculation) {
  if (speculation.draft_tokens < 1 || speculation.draft_tokens > Speculation::kMostDraftTokens) {
    return invalid_argument("drafts of " + std::to_string(speculation.draft_tokens) + " tokens; it must be 1 to " +
                            std::to_string(Speculation::kMostDraftTokens));
  }
  if (!(speculation.row_cost >= 0 && speculation.row_cost <= 1)) {
    return invalid_argument("a row cost of " + std::to_string(speculation.row_cost) + "; it must be 0 to 1");
  }
  return {};
}

Result<Generation> generate(Engine& engine, SessionId session, model::Sampler& sampler,
                            std::span<const float> first_logits, const GenerateOptions& options) {
  if (Status s = check_speculation(options.speculation); !s.ok()) return s;
  if (Status s = check_contrast(options.contrast.weight, options.contrast.tokens); !s.ok()) return s;
  return Answer(engine, session, sampler, options).run(first_logits);
}

}  // namespace varve::engine
