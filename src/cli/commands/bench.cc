#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>

#include "cli/auto_profile.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/interrupt.h"
#include "cli/lifecycle_report.h"
#include "cli/model_options.h"
#include "cli/paths.h"
#include "cli/run_report.h"
#include "cli/speculation_options.h"
#include "cli/step_profile_report.h"
#include "cli/terminal.h"
#include "eval/cpu/cpu_bench.h"
#include "eval/kl.h"
#include "eval/lifecycle.h"
#include "eval/parity.h"
#include "eval/speculation.h"
#include "eval/speed.h"
#include "eval/step_profile.h"
#include "eval/weights.h"
#include "kernels/cpu/kernels.h"
#include "model/chat.h"
#include "model/text.h"

namespace varve::cli {
namespace {

struct BenchOptions {
  ModelOptions model;
  SpeculationOptions speculation{.mode = "lookup"};
  int answer_tokens = 128, copied_tokens = 300;
  std::string suite = "all";
  std::string file;
  std::vector<int> prompts;
  std::vector<std::string> arms;
  std::string tokens = "4096", depth = "4096", profile_depth = "7900";
  int rounds = 5;
  int decode_tokens = 24;
  int kl_chunk = 128;
  bool json = false;
  bool quick = false, growth = false;
  std::vector<std::string> cpu_rows, cpu_depths;
};

/// What a long bench is doing, on a terminal.
class Steps {
 public:
  void operator()(const std::string& what, int done, int total) {
    if (!progress_ || what != what_) {
      progress_ = std::make_shared<Progress>(what, static_cast<uint64_t>(total), Unit::kItems);
      what_ = what;
    }
    progress_->update(static_cast<uint64_t>(done));
  }

 private:
  std::shared_ptr<Progress> progress_;
  std::string what_;
};

using Tokens = std::vector<int32_t>;

/// The file given, else the Jargon File that `varve pull jargon` fetches; at most `wanted` tokens of it.
Result<Tokens> read_bench_text(const model::Model& model, const BenchOptions& options, int wanted) {
  const std::string path = options.file.empty() ? (default_text_dir() / "jargon.txt").string() : options.file;
  auto text = read_text(path);
  if (!text.ok()) {
    if (options.file.empty() && text.status().code() == StatusCode::kNotFound) {
      return not_found(path + " is not there: `varve pull jargon` fetches it, or name a text file");
    }
    return text.status();
  }
  // No tokenizer here gives more tokens than bytes; 16 bytes a token keeps a whole book from being tokenized for a
  // page.
  if (text->size() > size_t(wanted) * 16) text->resize(size_t(wanted) * 16);
  while (!text->empty() && (static_cast<unsigned char>(text->back()) & 0xc0) == 0x80) text->pop_back();
  auto tokens = model::tokenize(model, *text, true, false);
  if (tokens.ok() && int(tokens->size()) > wanted) tokens->resize(size_t(wanted));
  return tokens;
}

Status bench_support(const BenchOptions& options) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const kernels::Kernels* k : kernels::available()) kernels.push_back(k->name);
  const auto chosen = kernels::choose(options.model.kernel);
  if (!chosen.ok()) return chosen.status();
  const auto codec_names = [](size_t count, auto name) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < count; ++i) list.push_back(name(i));
    return list;
  };
  const nlohmann::ordered_json document = {
      {"kernels_here", kernels},
      {"chosen", (*chosen)->name},
      {"k_codecs", codec_names(kernels::kKCodecs, [](size_t i) { return format::k_codec(kernels::KCodec(i)).name; })},
      {"v_codecs", codec_names(kernels::kVCodecs, [](size_t i) { return format::v_codec(kernels::VCodec(i)).name; })},
      {"head_dims", format::kHeadDims},
      {"max_group", kernels::kMaxGroup}};
  if (options.json) {
    std::cout << document.dump(2) << "\n";
    return {};
  }
  std::cout << "kernel tables this machine runs, best first (--kernel forces one):";
  for (const auto& k : kernels) std::cout << " " << k.get<std::string>();
  std::cout << "\nchosen: " << (*chosen)->name << "\nevery table serves K " << document["k_codecs"].dump() << " x V "
            << document["v_codecs"].dump() << ",\nhead_dim " << document["head_dims"].dump() << ", 1 to "
            << kernels::kMaxGroup << " query heads per KV head\n";
  return {};
}

void print_kl(const eval::KlReport& report) {
  std::printf("%d tokens, the first %d not compared; KL(dense || arm) in nats\n", report.tokens, report.skipped);
  std::printf("%-24s %9s %9s %9s %9s %9s %9s %9s %7s\n", "arm", "mean", "median", "p99", "max", "same top", "PPL x",
              "bits/val", "ratio");
  for (const eval::KlArm& a : report.arms) {
    const eval::DivergenceSummary& s = a.summary;
    std::printf("%-24s %9.6f %9.6f %9.4f %9.3f %8.2f%% %9.4f %9.2f %6.2fx\n", a.profile.name.c_str(), s.mean, s.median,
                s.p99, s.max, 100 * s.same_top, s.ppl_ratio, a.stats.kv.ratio() > 0 ? 16 / a.stats.kv.ratio() : 0.0,
                a.stats.kv.ratio());
    for (const auto& [reason, count] : a.stats.fallbacks) {
      std::printf("  fallback %s: %llu\n", reason.c_str(), static_cast<unsigned long long>(count));
    }
  }
}

nlohmann::ordered_json kl_json(const eval::KlReport& report) {
  nlohmann::ordered_json arms = nlohmann::ordered_json::array();
  for (const eval::KlArm& a : report.arms) {
    const eval::DivergenceSummary& s = a.summary;
    arms.push_back({{"arm", a.profile.name},
                    {"profile_digest", a.profile.digest()},
                    {"n", s.n},
                    {"kld_mean", s.mean},
                    {"kld_median", s.median},
                    {"kld_p99", s.p99},
                    {"kld_p999", s.p999},
                    {"kld_max", s.max},
                    {"same_top1", s.same_top},
                    {"ppl_dense", s.ppl_p},
                    {"ppl_ratio", s.ppl_ratio},
                    {"seconds", a.seconds},
                    {"kv", kv_json(a.stats.kv)},
                    {"fallbacks", a.stats.fallbacks}});
  }
  return {{"tokens", report.tokens}, {"skipped", report.skipped}, {"arms", std::move(arms)}};
}

Status bench_kl(const std::shared_ptr<model::Model>& model, const BenchOptions& options) {
  if (options.file.empty()) return invalid_argument("kl needs a text file: varve bench kl FILE -m MODEL");
  const auto wanted = parse_tokens(options.tokens);
  if (!wanted.ok()) return wanted.status();
  const auto tokens = read_bench_text(*model, options, *wanted);
  if (!tokens.ok()) return tokens.status();
  eval::KlOptions kl;
  kl.chunk_tokens = options.kl_chunk;
  kl.threads = options.model.threads;
  kl.kernel = options.model.kernel;
  for (const std::string& name : options.arms) {
    auto profile = load_profile(name, options.model);
    if (!profile.ok()) return profile.status();
    kl.arms.push_back(std::move(*profile));
  }
  Progress progress("comparing", tokens->size(), Unit::kTokens);
  kl.progress = [&](int done, int) {
    progress.update(static_cast<uint64_t>(done));
    return !interrupted();
  };
  const auto report = eval::measure_kl(model, *tokens, kl);
  progress.clear();
  if (!report.ok()) return report.status();
  if (options.json) {
    std::cout << kl_json(*report).dump(2) << "\n";
  } else {
    print_kl(*report);
  }
  return {};
}

Status bench_weights(const std::shared_ptr<model::Model>& model, const BenchOptions& options) {
  eval::WeightOptions weights;
  weights.threads = options.model.threads;
  weights.kernel = options.model.kernel;
  weights.rounds = options.rounds;
  weights.prompts = options.prompts;
  weights.progress = Steps();
  const int longest =
      std::max(weights.compared_tokens, *std::max_element(options.prompts.begin(), options.prompts.end()));
  const auto text = read_bench_text(*model, options, longest);
  if (!text.ok()) return text.status();
  const auto rows = eval::measure_weights(model, *text, weights);
  if (!rows.ok()) return rows.status();
  if (options.json) {
    std::cout << bench_json(*rows).dump(2) << "\n";
  } else {
    print_bench(std::cout, *rows);
  }
  return {};
}

Status bench_lifecycle(const std::shared_ptr<model::Model>& model, const BenchOptions& options) {
  const auto profile = choose_profile(options.model);
  if (!profile.ok()) return profile.status();
  eval::LifecycleOptions lifecycle;
  lifecycle.profile = *profile;
  lifecycle.threads = options.model.threads;
  lifecycle.kernel = options.model.kernel;
  lifecycle.weight_gemm = options.model.weight_gemm;
  lifecycle.rounds = options.rounds;
  lifecycle.refinement_dir = options.model.restore_dir;
  const auto depth = parse_tokens(options.profile_depth), prefix = parse_tokens(options.depth);
  if (!depth.ok()) return depth.status();
  if (!prefix.ok()) return prefix.status();
  lifecycle.depth_tokens = *depth;
  lifecycle.prefix_tokens = *prefix;
  lifecycle.shift_tokens = *depth * 3 / 4;
  const auto text = read_bench_text(*model, options, std::max(*depth, *prefix) + 1024);
  if (!text.ok()) return text.status();
  lifecycle.progress = [steps = Steps()](const std::string& what, int done, int total) mutable {
    steps(what, done, total);
    return !interrupted();
  };
  const auto report = eval::measure_lifecycle(model, *text, lifecycle);
  if (!report.ok()) return report.status();
  if (options.json) {
    std::cout << lifecycle_json(*report).dump(2) << "\n";
  } else {
    print_lifecycle(std::cout, *report);
  }
  return {};
}

Status bench_profile(const std::shared_ptr<model::Model>& model, const BenchOptions& options) {
  const auto profile = choose_profile(options.model);
  if (!profile.ok()) return profile.status();
  const auto depth = parse_tokens(options.profile_depth);
  if (!depth.ok()) return depth.status();
  eval::StepProfileOptions steps;
  steps.profile = *profile;
  steps.threads = options.model.threads;
  steps.kernel = options.model.kernel;
  steps.depth_tokens = *depth;
  steps.decode_tokens = options.decode_tokens;
  steps.rounds = options.rounds;
  steps.progress = [show = Steps()](const std::string& what, int done, int total) mutable {
    show(what, done, total);
    return !interrupted();
  };
  const auto text = read_bench_text(*model, options, *depth + options.decode_tokens);
  if (!text.ok()) return text.status();
  const auto report = eval::profile_steps(model, *text, steps);
  if (!report.ok()) return report.status();
  if (options.json) {
    std::cout << step_profile_json(*report).dump(2) << "\n";
  } else {
    print_step_profile(std::cout, *report);
  }
  return {};
}

void print_rows(const std::vector<eval::BenchRow>& rows, bool json) {
  if (json) {
    std::cout << bench_json(rows).dump(2) << "\n";
  } else {
    print_bench(std::cout, rows);
  }
}

/// The text and a request through the model's chat template; of a base model the text as it is, and again its start.
Result<std::vector<eval::SpeculationPrompt>> speculation_prompts(const model::Model& model, const std::string& text,
                                                                 std::span<const int32_t> text_tokens) {
  const auto chat = model::ChatTemplate::create(model, "");
  if (!chat.ok()) return chat.status();
  const std::pair<const char*, const char*> requests[] = {
      {"an answer that copies", "Repeat the text above, word for word."},
      {"an answer of its own", "Now something else: what would you pack for a week at sea, and why?"}};
  std::vector<eval::SpeculationPrompt> out;
  if (!(*chat)->is_explicit()) {
    std::vector<int32_t> again(text_tokens.begin(), text_tokens.end());
    again.insert(again.end(), text_tokens.begin(), text_tokens.begin() + ptrdiff_t(text_tokens.size() / 4));
    out.push_back({requests[0].first, std::move(again)});
    return out;
  }
  for (const auto& [name, request] : requests) {
    const auto prompt = (*chat)->apply({{.role = "user", .content = text + "\n\n" + request}}, {});
    if (!prompt.ok()) return prompt.status();
    auto tokens = model::chat_tokens(model, *prompt);
    if (!tokens.ok()) return tokens.status();
    out.push_back({name, std::move(*tokens)});
  }
  return out;
}

Status bench_speculate(const std::shared_ptr<model::Model>& model, const BenchOptions& options) {
  if (options.speculation.mode == "off")
    return invalid_argument("speculate compares --speculate lookup or draft with off");
  const auto profile = choose_profile(options.model);
  if (!profile.ok()) return profile.status();
  const auto text_tokens = read_bench_text(*model, options, options.copied_tokens);
  if (!text_tokens.ok()) return text_tokens.status();
  const auto text = model::detokenize(*model, *text_tokens, false);
  if (!text.ok()) return text.status();
  const auto prompts = speculation_prompts(*model, *text, *text_tokens);
  if (!prompts.ok()) return prompts.status();
  TraceFile trace;
  const auto engine = open_engine(model, options.model, *profile, trace);
  if (!engine.ok()) return engine.status();
  const auto speculation = open_speculation(options.speculation, options.model, **engine, {});
  if (!speculation.ok()) return speculation.status();
  eval::SpeculationBenchOptions bench{.speculation = speculation->speculation,
                                      .answer_tokens = options.answer_tokens,
                                      .rounds = options.rounds,
                                      .progress = {}};
  bench.progress = [show = Steps()](const std::string& what, int done, int total) mutable {
    show(what, done, total);
    return !interrupted();
  };
  const auto rows = eval::measure_speculation(**engine, *prompts, bench);
  if (!rows.ok()) return rows.status();
  print_rows(*rows, options.json);
  return {};
}

eval::CpuBenchOptions cpu_options(const model::ModelInfo& info, const BenchOptions& options) {
  auto cpu = options.quick ? eval::CpuBenchOptions::quick(info) : eval::CpuBenchOptions::full(info);
  cpu.threads = options.model.threads;
  cpu.kernel = options.model.kernel;
  if (!options.quick) {
    cpu.rounds = options.rounds;
    cpu.decode_tokens = options.decode_tokens;
  }
  cpu.progress = [show = Steps()](const std::string& what, int done, int total) mutable {
    show(what, done, total);
    return !interrupted();
  };
  return cpu;
}

/// The attention rows alone: random values, no model.
Status bench_attention(const BenchOptions& options) {
  const auto rows = eval::measure_attention(cpu_options({}, options));
  if (rows.ok()) print_rows(*rows, options.json);
  return rows.status();
}

/// Attention alone and the model end to end, or with --growth the model at growing contexts.
Status bench_cpu(const std::shared_ptr<model::Model>& model, const BenchOptions& options) {
  const auto profile = choose_profile(options.model);
  if (!profile.ok()) return profile.status();
  auto cpu = cpu_options(model->info(), options);
  cpu.profile = *profile;
  if (options.growth) {
    cpu.shapes.clear();
    cpu.depths.clear();
    cpu.kl_tokens = 0;
  } else {
    cpu.growth.clear();
  }
  const auto wants = [&](const char* row) {
    return options.cpu_rows.empty() ||
           std::find(options.cpu_rows.begin(), options.cpu_rows.end(), row) != options.cpu_rows.end();
  };
  if (!options.cpu_depths.empty()) cpu.depths.clear();
  for (const std::string& text : options.cpu_depths) {
    const auto depth = parse_tokens(text);
    if (!depth.ok()) return depth.status();
    const int most = model->info().context_train - cpu.decode_tokens;
    if (*depth < 1 || *depth > most) {
      return invalid_argument("--depths " + text + ": a decode row wants 1 to " + std::to_string(most) +
                              " tokens of context, " + std::to_string(cpu.decode_tokens) + " less than the model's");
    }
    cpu.depths.push_back(*depth);
  }
  if (!wants("attention")) cpu.shapes.clear();
  if (!wants("decode")) cpu.depths.clear();
  if (!wants("quality")) cpu.kl_tokens = 0;
  const auto text = read_bench_text(*model, options, cpu.text_tokens());
  if (!text.ok()) return text.status();
  const auto seconds = eval::estimate_cpu_bench_s(model, cpu);
  if (!seconds.ok()) return seconds.status();
  std::cerr << "varve bench cpu: about " << format_duration(*seconds) << " on this machine, " << cpu.rounds
            << " rounds\n";

  std::vector<eval::BenchRow> rows;
  const auto add = [&](Result<std::vector<eval::BenchRow>> measured) {
    if (measured.ok()) rows.insert(rows.end(), measured->begin(), measured->end());
    return measured.status();
  };
  if (options.growth) {
    if (Status s = add(eval::measure_growth(model, *text, cpu)); !s.ok()) return s;
  } else {
    if (Status s = add(eval::measure_attention(cpu)); !s.ok()) return s;
    if (Status s = add(eval::measure_long_context(model, *text, cpu)); !s.ok()) return s;
  }
  print_rows(rows, options.json);
  return {};
}

Status bench_rows(const std::shared_ptr<model::Model>& model, const BenchOptions& options) {
  const auto depth = parse_tokens(options.depth), profile_depth = parse_tokens(options.profile_depth);
  if (!depth.ok()) return depth.status();
  if (!profile_depth.ok()) return profile_depth.status();
  const auto profile = choose_profile(options.model);
  if (!profile.ok()) return profile.status();
  const auto text = read_bench_text(*model, options, std::max(*depth, *profile_depth) + options.decode_tokens + 1024);
  if (!text.ok()) return text.status();

  std::vector<eval::BenchRow> rows;
  if (options.suite != "speed") {
    eval::ParityOptions parity;
    parity.threads = options.model.threads;
    parity.kernel = options.model.kernel;
    parity.progress = Steps();
    const auto report = eval::measure_parity(model, *text, parity);
    if (!report.ok()) return report.status();
    rows = eval::parity_rows(model->info().name, *report);
  }
  if (options.suite != "parity") {
    eval::SpeedOptions speed;
    speed.threads = options.model.threads;
    speed.kernel = options.model.kernel;
    speed.depth_tokens = *depth;
    speed.profile_depth_tokens = *profile_depth;
    speed.profile = *profile;
    speed.rounds = options.rounds;
    speed.decode_tokens = options.decode_tokens;
    speed.progress = Steps();
    const auto measured = eval::measure_speed(model, *text, speed);
    if (!measured.ok()) return measured.status();
    rows.insert(rows.end(), measured->begin(), measured->end());
  }
  print_rows(rows, options.json);
  return {};
}

Status run_bench(const BenchOptions& options) {
  catch_interrupts();
  if (options.suite == "support") return bench_support(options);
  const bool attention_alone = !options.growth && options.cpu_rows == std::vector<std::string>{"attention"};
  if (options.suite == "cpu" && attention_alone) return bench_attention(options);
  if (options.suite == "speculate") {
    if (Status s = check_speculation_options(options.speculation); !s.ok()) return s;
  }
  const auto model = open_model(options.model);
  if (!model.ok()) return model.status();
  if (options.suite == "speculate") return bench_speculate(*model, options);
  if (options.suite == "kl") return bench_kl(*model, options);
  if (options.suite == "cpu") return bench_cpu(*model, options);
  if (options.suite == "profile") return bench_profile(*model, options);
  if (options.suite == "weights") return bench_weights(*model, options);
  if (options.suite == "lifecycle") return bench_lifecycle(*model, options);
  return bench_rows(*model, options);
}

}  // namespace

Action define_bench(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  options->model.model = "smollm2-135m";
  app.add_option("suite", options->suite, "what to measure: all is parity and speed")
      ->check(CLI::IsMember(
          {"all", "speed", "parity", "kl", "weights", "lifecycle", "profile", "cpu", "speculate", "support"}))
      ->capture_default_str();
  app.add_option("file", options->file, "the text to read [the Jargon File]")->type_name("FILE");
  add_model_option(app, options->model);
  app.get_option("--model")->required(false)->capture_default_str();
  app.add_flag("--json", options->json, "print one JSON document on stdout (keys: docs/json.md)");
  app.add_option("--arms", options->arms, "kl: profiles to compare with dense")
      ->delimiter(',')
      ->default_str("dense,int8,minima");
  app.add_option("--tokens", options->tokens, "kl: how much of the text")->capture_default_str();
  app.add_option("--kl-chunk", options->kl_chunk, "kl: tokens of one step; 1 is token-by-token decode")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--depth", options->depth,
                 "speed: context of the comparison with llama.cpp; lifecycle: prefix of a hit")
      ->capture_default_str();
  app.add_option("--profile-depth", options->profile_depth,
                 "speed: context of --profile against our own dense; lifecycle: the document; profile: the "
                 "context")
      ->capture_default_str();
  app.add_flag("--quick", options->quick, "cpu: every row at sizes that mean nothing, to see that it runs");
  app.add_option("--rows", options->cpu_rows,
                 "cpu: only these rows: attention, decode (with TTFT and sessions), quality")
      ->delimiter(',')
      ->check(CLI::IsMember({"attention", "decode", "quality"}))
      ->type_name("ROWS");
  app.add_option("--depths", options->cpu_depths, "cpu: contexts of the decode rows [7900, or 8192 and 16384]")
      ->delimiter(',')
      ->type_name("TOKENS");
  app.add_flag("--growth", options->growth, "cpu: decode time against context, 1K to 32K, instead of the other rows");
  app.add_option("--rounds", options->rounds,
                 "speed, lifecycle, profile, cpu, speculate: measurements of each; medians are shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--decode-tokens", options->decode_tokens, "speed, profile, cpu: tokens of one decode measurement")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--prompts", options->prompts, "weights: tokens of the prompts that are read")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->default_str("64,128,512,2048");
  app.add_option("-n,--predict", options->answer_tokens, "speculate: most tokens of an answer")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--copied-tokens", options->copied_tokens, "speculate: how much of the text is to be copied")
      ->check(CLI::Range(8, 1 << 20))
      ->capture_default_str();
  add_engine_options(app, options->model);
  add_speculation_options(app, options->speculation);
  app.footer(
      "Examples:\n"
      "  varve bench                                    parity and speed beside llama.cpp, one run, one process\n"
      "  varve bench kl report.txt -m model.gguf --arms dense,int8,k4v4,minima --tokens 8K\n"
      "  varve bench lifecycle -m qwen2.5-coder-0.5b    what scores, conversions, hits and promotions cost and give\n"
      "  varve bench cpu -m smollm2-135m                long context on this processor (docs/performance.md)\n"
      "  varve bench profile -m smollm2-135m            where the time of a step goes\n"
      "  varve bench weights                            prompts with --weight-gemm auto beside ggml\n"
      "  varve bench speculate -m qwen2.5-coder-0.5b    answers with drafts beside answers without\n"
      "  varve bench support                            which kernels run here\n"
      "A ratio above 1 means that varve is better. Speed is only comparable while nothing else runs.");
  return [options] {
    if (options->prompts.empty()) options->prompts = eval::WeightOptions().prompts;
    if (options->arms.empty()) options->arms = {"dense", "int8", "minima"};
    return run_bench(*options);
  };
}

}  // namespace varve::cli
