#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/manifest.h"
#include "cli/command.h"
#include "cli/fetch.h"
#include "cli/interrupt.h"
#include "cli/paths.h"
#include "cli/terminal.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

struct PullOptions {
  std::vector<std::string> names;
  std::string model_dir = default_model_dir().string();
  std::string text_dir = default_text_dir().string();
  std::string packages;
  bool list = false;
  bool texts = false;
};

void print_row(const char* key, const std::string& size, const char* state, const char* licence, const char* about) {
  std::printf("%-20s %10s  %-7s  %-20s  %s\n", key, size.c_str(), state, licence, about);
}

void print_list(const PullOptions& options) {
  const auto state = [](const std::string& directory, const std::string& file, uint64_t bytes) {
    return is_fetched(fs::path(directory) / file, bytes) ? "fetched" : "-";
  };
  print_row("MODEL", "SIZE", "STATE", "LICENCE", "");
  for (const ManifestModel& m : manifest().models)
    print_row(m.key.c_str(), format_bytes(m.bytes), state(options.model_dir, m.file, m.bytes), m.licence.c_str(),
              m.about.c_str());
  print_row("\nTEXT", "SIZE", "STATE", "LICENCE", "");
  for (const ManifestText& t : manifest().texts)
    print_row(t.key.c_str(), format_bytes(t.bytes), state(options.text_dir, t.file, t.bytes), t.licence.c_str(),
              t.about.c_str());
}

/// A GGUF file that is already here needs no fetching; its absolute path is the answer.
Result<std::string> check_local(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> magic{};
  if (!file.read(magic.data(), magic.size()) || std::string_view(magic.data(), magic.size()) != "GGUF")
    return corrupt(path + " is not a GGUF file");
  return fs::absolute(path).lexically_normal().string();
}

Result<std::string> pull(const std::string& name, const PullOptions& options) {
  if (const ManifestModel* model = manifest().find_model(name))
    return fetch_model(*model, {options.model_dir, options.packages});
  if (const ManifestText* text = manifest().find_text(name))
    return fetch_text(*text, {options.text_dir, options.packages});
  std::error_code error;
  if (fs::is_regular_file(name, error)) return check_local(name);
  std::string texts;
  for (const ManifestText& text : manifest().texts) texts += (texts.empty() ? "" : ", ") + text.key;
  return invalid_argument("no file and no known key is named '" + name + "' (models: " + known_models() +
                          "; texts: " + texts + ")");
}

/// The name that stands for every text.
constexpr const char* kTexts = "texts";

/// The names with `texts` replaced by the texts' keys.
std::vector<std::string> expand(const std::vector<std::string>& names) {
  std::vector<std::string> expanded;
  for (const std::string& name : names) {
    if (name != kTexts) expanded.push_back(name);
    if (name == kTexts)
      for (const ManifestText& text : manifest().texts) expanded.push_back(text.key);
  }
  return expanded;
}

Status pull_all(PullOptions& options) {
  if (options.list) {
    print_list(options);
    return {};
  }
  if (options.texts) options.names.push_back(kTexts);
  if (options.names.empty()) return invalid_argument("which one? `varve pull --list` shows what there is");
  catch_interrupts();
  std::string paths;  // printed only when all went well: a failure leaves stdout empty
  for (const std::string& name : expand(options.names)) {
    const Result<std::string> path = pull(name, options);
    if (!path.ok()) return path.status();
    paths += *path + "\n";
  }
  std::cout << paths;
  return {};
}

}  // namespace

Action define_pull(CLI::App& app) {
  const auto options = std::make_shared<PullOptions>();
  app.add_option("names", options->names,
                 "keys of `varve pull --list`, `texts` for every text, or GGUF files that are here already")
      ->type_name("KEY");
  app.add_flag("--list", options->list, "show what can be fetched, and what is already here");
  app.add_flag("--texts", options->texts, "fetch every known text, as the name `texts` does");
  app.add_option("--model-dir", options->model_dir, "where models go")->type_name("DIR")->capture_default_str();
  app.add_option("--text-dir", options->text_dir, "where texts go")->type_name("DIR")->capture_default_str();
  app.add_option("--packages", options->packages, "take the packages (.whl, .deb) from here, not from the network")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  app.footer("Prints one path a line, in the order asked. An interrupted download continues where it stopped.");
  return [options] { return pull_all(*options); };
}

}  // namespace varve::cli
