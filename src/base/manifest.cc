#include "base/manifest.h"

#include <nlohmann/json.hpp>

namespace varve {

extern const char* const kManifestJson;  // generated from manifest.json by CMakeLists.txt

namespace {

using nlohmann::json;

ManifestPart read_part(const json& j) {
  return {j.at("package"), j.at("version"), j.at("member"), j.at("bytes"), j.at("sha256")};
}

ManifestModel read_model(const json& j) {
  ManifestModel model{j.at("key"), j.at("file"), j.at("bytes"), j.at("sha256"), j.at("licence"), j.at("about"), {}};
  for (const json& part : j.at("parts")) model.parts.push_back(read_part(part));
  return model;
}

ManifestText read_text(const json& j) {
  return {j.at("key"),
          j.at("file"),
          j.at("bytes"),
          j.at("sha256"),
          j.at("licence"),
          j.at("about"),
          j.at("package"),
          j.at("member"),
          j.value("packing", "plain") == "windows" ? TextPacking::kWindows : TextPacking::kPlain,
          j.value("prose", false)};
}

Manifest read_manifest() {
  const json document = json::parse(kManifestJson);
  Manifest read;
  for (const json& model : document.at("models")) read.models.push_back(read_model(model));
  for (const json& text : document.at("texts")) read.texts.push_back(read_text(text));
  return read;
}

template <typename T>
const T* find(const std::vector<T>& entries, std::string_view key) {
  for (const T& entry : entries)
    if (entry.key == key) return &entry;
  return nullptr;
}

}  // namespace

const ManifestModel* Manifest::find_model(std::string_view key) const { return find(models, key); }
const ManifestText* Manifest::find_text(std::string_view key) const { return find(texts, key); }

const Manifest& manifest() {
  static const Manifest kManifest = read_manifest();
  return kManifest;
}

}  // namespace varve
