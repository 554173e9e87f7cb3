#include "cli/eval_texts.h"

#include <algorithm>

#include "base/manifest.h"
#include "cli/documents.h"
#include "eval/texts.h"

namespace varve::cli {
namespace {

constexpr uint64_t kShortestBytes = 160'000;  // of a text in the default list: some 32K tokens and more

}  // namespace

Result<std::vector<eval::Document>> read_eval_texts(const std::vector<std::string>& names, bool prose,
                                                    const std::filesystem::path& directory) {
  std::vector<std::string> wanted = names;
  if (names.empty()) {
    for (const std::string& key : eval::Texts::names(prose)) {
      const ManifestText* text = manifest().find_text(key);
      if (text != nullptr && text->bytes >= kShortestBytes) wanted.push_back(key);
    }
  }
  const eval::Texts texts(directory);
  std::vector<eval::Document> documents;
  for (const std::string& name : wanted) {
    if (manifest().find_text(name) != nullptr) {
      auto document = texts.load(name);
      if (!document.ok()) return document.status();
      documents.push_back(std::move(*document));
    } else {
      auto text = read_text(name);
      if (!text.ok()) return text.status();
      documents.push_back({.name = std::filesystem::path(name).stem().string(), .text = std::move(*text)});
    }
    const std::string& added = documents.back().name;
    if (std::ranges::count(documents, added, &eval::Document::name) > 1) {
      return invalid_argument("two texts are named " + added);
    }
  }
  return documents;
}

}  // namespace varve::cli
