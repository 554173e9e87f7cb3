#include "model/sampler.h"

#include <llama.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <random>

#include "model/ggml_guard.h"
#include "model/text.h"

namespace varve::model {
namespace {

struct FreeSampler {
  void operator()(llama_sampler* s) const { llama_sampler_free(s); }
};
using SamplerHandle = std::unique_ptr<llama_sampler, FreeSampler>;

Status check_range(const char* name, double value, double least, double most) {
  if (value >= least && value <= most) return Status();
  return invalid_argument(std::string(name) + " is " + std::to_string(value) + ", must be between " +
                          std::to_string(least) + " and " + std::to_string(most));
}

Status check_options(const SamplerOptions& o, int vocabulary) {
  const struct {
    const char* name;
    double value, least, most;
  } ranges[] = {
      {"temperature", o.temperature, 0, 100},
      {"top_k", static_cast<double>(o.top_k), 0, INT32_MAX},
      {"top_p", o.top_p, 0, 1},
      {"min_p", o.min_p, 0, 1},
      {"penalty_tokens", static_cast<double>(o.penalty_tokens), 0, 1 << 20},
      {"repeat_penalty", o.repeat_penalty, 0.01, 100},
      {"frequency_penalty", o.frequency_penalty, -100, 100},
      {"presence_penalty", o.presence_penalty, -100, 100},
  };
  for (const auto& r : ranges) {
    if (Status s = check_range(r.name, r.value, r.least, r.most); !s.ok()) return s;
  }
  if (o.seed == LLAMA_DEFAULT_SEED) {
    return invalid_argument("seed 4294967295 would mean a random seed; choose one, so that the run can be repeated");
  }
  for (const auto& [token, bias] : o.logit_bias) {
    if (token < 0 || token >= vocabulary || std::isnan(bias)) {
      return invalid_argument("logit bias " + std::to_string(bias) + " for token " + std::to_string(token) +
                              " with a vocabulary of " + std::to_string(vocabulary));
    }
  }
  return Status();
}

/// Everything before the choice: what is left after it is the distribution.
SamplerHandle make_chain(const SamplerOptions& o, const llama_vocab* vocab, int vocabulary) {
  llama_sampler_chain_params params = llama_sampler_chain_default_params();
  params.no_perf = true;
  SamplerHandle chain(llama_sampler_chain_init(params));
  const auto add = [&](llama_sampler* s) { llama_sampler_chain_add(chain.get(), s); };

  std::vector<llama_logit_bias> biases;
  for (const auto& [token, bias] : o.logit_bias) biases.push_back({token, bias});
  int32_t suppressed_count = 0;  // tokens the model's file says never to emit
  const llama_token* suppressed = llama_vocab_get_suppress_tokens(vocab, &suppressed_count);
  for (int32_t i = 0; i < suppressed_count; ++i) biases.push_back({suppressed[i], -INFINITY});
  if (!biases.empty()) {
    add(llama_sampler_init_logit_bias(vocabulary, static_cast<int32_t>(biases.size()), biases.data()));
  }
  if (o.penalty_tokens > 0 && (o.repeat_penalty != 1 || o.frequency_penalty != 0 || o.presence_penalty != 0)) {
    add(llama_sampler_init_penalties(vocabulary, o.penalty_tokens, o.repeat_penalty, o.frequency_penalty,
                                     o.presence_penalty));
  }
  if (o.temperature == 0) return chain;
  if (o.top_k > 0) add(llama_sampler_init_top_k(o.top_k));
  if (o.top_p < 1) add(llama_sampler_init_top_p(o.top_p, 1));
  if (o.min_p > 0) add(llama_sampler_init_min_p(o.min_p, 1));
  add(llama_sampler_init_temp(o.temperature));
  return chain;
}

SamplerHandle make_choice(const SamplerOptions& o) {
  return SamplerHandle(o.temperature == 0 ? llama_sampler_init_greedy() : llama_sampler_init_dist(o.seed));
}

Status check_logits(std::span<const float> logits, int vocabulary) {
  if (logits.size() != static_cast<size_t>(vocabulary)) {
    return invalid_argument(std::to_string(logits.size()) + " logits for a vocabulary of " +
                            std::to_string(vocabulary));
  }
  float highest = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY) {
      return internal_error("logit " + std::to_string(i) + " is " + std::to_string(logits[i]));
    }
    if (logits[i] > highest) highest = logits[i];
  }
  if (highest == -INFINITY) return internal_error("no logit is finite");
  return Status();
}

/// Null when the specification is empty.
Result<SamplerHandle> make_grammar(const Model& model, const GrammarSpec& spec) {
  if (spec.text.empty()) return SamplerHandle();
  if (Status s = check_grammar(model.vocab(), spec.text); !s.ok()) return s;
  SamplerHandle grammar;
  if (spec.lazy) {
    std::vector<const char*> patterns;
    for (const std::string& p : spec.trigger_patterns) patterns.push_back(p.c_str());
    grammar.reset(llama_sampler_init_grammar_lazy_patterns(model.vocab(), spec.text.c_str(), "root", patterns.data(),
                                                           patterns.size(), spec.trigger_tokens.data(),
                                                           spec.trigger_tokens.size()));
  } else {
    grammar.reset(llama_sampler_init_grammar(model.vocab(), spec.text.c_str(), "root"));
  }
  if (grammar == nullptr) return invalid_argument("grammar: libllama refuses it: " + guarded_log());
  if (!spec.lazy && !spec.prefill.empty()) {
    Result<std::vector<int32_t>> tokens = tokenize(model, spec.prefill, /*add_special=*/false, /*parse_special=*/true);
    if (!tokens.ok()) return tokens.status();
    // Some tokenizers put a space before the first control token that is not in the text.
    const bool spaced = std::isspace(static_cast<unsigned char>(spec.prefill[0])) != 0;
    for (size_t i = 0; i < tokens->size(); ++i) {
      Result<std::string> text = piece(model, (*tokens)[i], /*special=*/true);
      if (!text.ok()) return text.status();
      if (i == 0 && !spaced && !text->empty() && std::isspace(static_cast<unsigned char>((*text)[0]))) continue;
      llama_sampler_accept(grammar.get(), (*tokens)[i]);
    }
  }
  return grammar;
}

}  // namespace

struct Sampler::Impl {
  std::shared_ptr<const Model> model;
  int vocabulary = 0;
  bool greedy = false;
  SamplerHandle chain, choice, grammar;
  std::mt19937_64 random;
  std::vector<llama_token_data> candidates;  ///< [vocabulary], rebuilt for each pick

  llama_token_data_array load(std::span<const float> logits) {
    candidates.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) candidates[i] = {static_cast<llama_token>(i), logits[i], 0.0f};
    return {candidates.data(), candidates.size(), -1, false};
  }

  /// The candidates that the grammar leaves; kInvalidArgument when there are none.
  Result<llama_token_data_array> load_allowed(std::span<const float> logits) {
    llama_token_data_array array = load(logits);
    llama_sampler_apply(grammar.get(), &array);
    for (size_t i = 0; i < array.size; ++i) {
      if (array.data[i].logit != -INFINITY) return array;
    }
    return invalid_argument("the grammar allows no token of the vocabulary here");
  }

  Result<int32_t> pick(llama_token_data_array& array) {
    llama_sampler_apply(chain.get(), &array);
    llama_sampler_apply(choice.get(), &array);
    if (array.selected < 0 || static_cast<size_t>(array.selected) >= array.size) {
      return internal_error("the sampler chain selected nothing");
    }
    return array.data[array.selected].id;
  }

  bool grammar_allows(int32_t token) {
    llama_token_data one{token, 1.0f, 0.0f};
    llama_token_data_array array{&one, 1, -1, false};
    llama_sampler_apply(grammar.get(), &array);
    return one.logit != -INFINITY;
  }

  Result<int32_t> sample(std::span<const float> logits) {
    llama_token_data_array array = load(logits);
    Result<int32_t> token = pick(array);
    if (grammar == nullptr || !token.ok() || grammar_allows(*token)) return token;
    // Checking one candidate is cheap, all of them is not: the grammar filters the vocabulary only after a refusal.
    Result<llama_token_data_array> allowed = load_allowed(logits);
    if (!allowed.ok()) return allowed.status();
    return pick(*allowed);
  }

  /// Softmax of what the chain leaves of the candidates, ascending tokens.
  std::vector<TokenProbability> shape(llama_token_data_array& array) {
    llama_sampler_apply(chain.get(), &array);
    float highest = -INFINITY;
    for (size_t i = 0; i < array.size; ++i) highest = std::max(highest, array.data[i].logit);
    double sum = 0;
    std::vector<TokenProbability> out;
    for (size_t i = 0; i < array.size; ++i) {
      const float p = std::exp(array.data[i].logit - highest);
      if (p <= 0) continue;
      out.push_back({array.data[i].id, p});
      sum += double(p);
    }
    for (TokenProbability& entry : out) entry.probability = static_cast<float>(double(entry.probability) / sum);
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
    return out;
  }

  Result<std::vector<TokenProbability>> distribution(std::span<const float> logits) {
    if (greedy) {
      Result<int32_t> token = sample(logits);
      if (!token.ok()) return token.status();
      return std::vector<TokenProbability>{{*token, 1.0f}};
    }
    llama_token_data_array array = load(logits);
    std::vector<TokenProbability> out = shape(array);
    if (grammar == nullptr) return out;
    double refused = 0;  // mass that sample() draws again, from what the grammar leaves
    std::erase_if(out, [&](const TokenProbability& entry) {
      const bool bad = !grammar_allows(entry.token);
      if (bad) refused += double(entry.probability);
      return bad;
    });
    if (refused == 0) return out;
    Result<llama_token_data_array> allowed = load_allowed(logits);
    if (!allowed.ok()) return allowed.status();
    std::vector<TokenProbability> both;
    auto first = out.begin();
    for (const TokenProbability& second : shape(*allowed)) {
      while (first != out.end() && first->token < second.token) both.push_back(*first++);
      both.push_back({second.token, static_cast<float>(refused * double(second.probability))});
      if (first != out.end() && first->token == second.token) both.back().probability += (first++)->probability;
    }
    both.insert(both.end(), first, out.end());
    return both;
  }
};

Sampler::Sampler() : impl_(std::make_unique<Impl>()) {}
Sampler::~Sampler() = default;

Result<std::unique_ptr<Sampler>> Sampler::create(std::shared_ptr<const Model> model, const SamplerOptions& options) {
  if (model == nullptr) return invalid_argument("a sampler needs a model");
  std::unique_ptr<Sampler> sampler(new Sampler);
  Impl& impl = *sampler->impl_;
  impl.model = std::move(model);
  impl.vocabulary = impl.model->info().vocabulary;
  if (Status s = check_options(options, impl.vocabulary); !s.ok()) return s;
  const Status made = guarded("sampler", [&] {
    Result<SamplerHandle> grammar = make_grammar(*impl.model, options.grammar);
    if (!grammar.ok()) return grammar.status();
    impl.grammar = std::move(grammar).value();
    impl.chain = make_chain(options, impl.model->vocab(), impl.vocabulary);
    impl.choice = make_choice(options);
    impl.greedy = options.temperature == 0;
    std::seed_seq seeds{options.seed, 1u};  // not the sequence of the choice
    impl.random.seed(seeds);
    return Status();
  });
  if (!made.ok()) return made;
  return sampler;
}

Result<int32_t> Sampler::sample(std::span<const float> logits) {
  if (Status s = check_logits(logits, impl_->vocabulary); !s.ok()) return s;
  int32_t token = -1;
  const Status s = guarded("sample", [&] {
    Result<int32_t> picked = impl_->sample(logits);
    if (!picked.ok()) return picked.status();
    token = *picked;
    return Status();
  });
  if (!s.ok()) return s;
  return token;
}

Result<std::vector<TokenProbability>> Sampler::distribution(std::span<const float> logits) {
  if (Status s = check_logits(logits, impl_->vocabulary); !s.ok()) return s;
  std::vector<TokenProbability> out;
  const Status s = guarded("sample", [&] {
    Result<std::vector<TokenProbability>> made = impl_->distribution(logits);
    if (made.ok()) out = std::move(*made);
    return made.status();
  });
  if (!s.ok()) return s;
  return out;
}

double Sampler::uniform() { return static_cast<double>(impl_->random() >> 11) * 0x1p-53; }

Status Sampler::accept(int32_t token, bool generated) {
  if (token < 0 || token >= impl_->vocabulary) {
    return invalid_argument("token " + std::to_string(token) + " is outside the vocabulary of " +
                            std::to_string(impl_->vocabulary));
  }
  return guarded("sampler", [&] {
    if (generated && impl_->grammar != nullptr) llama_sampler_accept(impl_->grammar.get(), token);
    llama_sampler_accept(impl_->chain.get(), token);
    return Status();
  });
}

}  // namespace varve::model
