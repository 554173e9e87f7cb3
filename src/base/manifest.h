#pragma once
// The models and texts that varve knows by name: where each comes from and what its bytes must hash to.
// The data is manifest.json beside this file, embedded at build time.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace varve {

/// A slice of a model as one file inside one package of the Python package index.
struct ManifestPart {
  std::string package;
  std::string version;
  std::string member;  ///< the file's path inside the package
  uint64_t bytes = 0;
  std::string sha256;
};

/// A GGUF file: the concatenation of its parts.
struct ManifestModel {
  std::string key;
  std::string file;  ///< its name in the model directory
  uint64_t bytes = 0;
  std::string sha256;
  std::string licence;
  std::string about;
  std::vector<ManifestPart> parts;
};

/// How a text is packed inside its package.
enum class TextPacking {
  kPlain,    ///< as it is, or gzipped when the member ends in ".gz"
  kWindows,  ///< compressed in windows behind an index, as bible-kjv-text packs its text
};

/// A document inside a Debian package. Package versions move within a release, so the text is pinned by its hash.
struct ManifestText {
  std::string key;
  std::string file;  ///< its name in the text directory
  uint64_t bytes = 0;
  std::string sha256;
  std::string licence;
  std::string about;
  std::string package;
  std::string member;  ///< the file's path inside the package
  TextPacking packing = TextPacking::kPlain;
  bool prose = false;  ///< long running prose, fit to hide needles in
};

struct Manifest {
  std::vector<ManifestModel> models;
  std::vector<ManifestText> texts;

  /// Null when there is no such key.
  const ManifestModel* find_model(std::string_view key) const;
  const ManifestText* find_text(std::string_view key) const;
};

const Manifest& manifest();

}  // namespace varve
