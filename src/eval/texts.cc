#include "eval/texts.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/manifest.h"
#include "base/sha256.h"
#include "eval/random.h"

namespace varve::eval {
namespace {

/// Where lines begin.
std::vector<size_t> line_begins(std::string_view text) {
  std::vector<size_t> begins;
  for (size_t at = 0; at < text.size();) {
    begins.push_back(at);
    const size_t end = text.find('\n', at);
    at = end == std::string_view::npos ? text.size() : end + 1;
  }
  return begins;
}

}  // namespace

std::vector<std::string> Texts::names(bool prose) {
  std::vector<std::string> names;
  for (const ManifestText& text : manifest().texts)
    if (text.prose || !prose) names.push_back(text.key);
  return names;
}

Result<Document> Texts::load(std::string_view name) const {
  const ManifestText* known = manifest().find_text(name);
  if (!known) {
    std::string list;
    for (const std::string& key : names()) list += (list.empty() ? "" : ", ") + key;
    return invalid_argument("no text is named '" + std::string(name) + "' (texts: " + list + ")");
  }
  const std::filesystem::path path = directory_ / known->file;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return not_found("text " + known->key + " is not in " + directory_.string() + ": fetch it with varve pull " +
                     known->key);
  std::ifstream file(path, std::ios::binary);
  Document document{known->key, {std::istreambuf_iterator<char>(file), {}}};
  if (!file) return io_error(path.string() + " cannot be read");
  Sha256 hash;
  hash.update(document.text.data(), document.text.size());
  if (hash.hex() != known->sha256)
    return corrupt(path.string() + " has SHA-256 " + hash.hex() + ", expected " + known->sha256 + ": varve pull " +
                   known->key + " repairs it");
  return document;
}

Result<std::string> Texts::slice(std::string_view name, uint64_t seed, const CountTokens& count_tokens,
                                 int tokens) const {
  const Result<Document> document = load(name);
  if (!document.ok()) return document.status();
  return eval::slice(*document, seed, count_tokens, tokens);
}

Result<std::string> slice(const Document& document, uint64_t seed, const CountTokens& count_tokens, int tokens) {
  if (tokens < 1) return invalid_argument("a slice of " + std::to_string(tokens) + " tokens was asked for");
  const std::string_view text = document.text;
  const std::vector<size_t> begins = line_begins(text);
  const auto part = [&](size_t first, size_t last) {
    return text.substr(begins[first], (last < begins.size() ? begins[last] : text.size()) - begins[first]);
  };
  const auto lines_from = [&](size_t first) {  // behind the most lines from there that have no more tokens
    size_t fits = first, step = 1;
    for (; fits + step <= begins.size() && count_tokens(part(first, fits + step)) <= tokens; step *= 2) fits += step;
    for (size_t too_many = std::min(fits + step, begins.size() + 1); too_many - fits > 1;) {
      const size_t middle = fits + (too_many - fits) / 2;
      (count_tokens(part(first, middle)) <= tokens ? fits : too_many) = middle;
    }
    return fits;
  };

  // The last line from which enough tokens follow, sought from the end back in doubling stretches: a long text is not
  // counted whole.
  size_t enough = begins.size(), too_late = begins.size();
  for (size_t back = 1; enough == begins.size(); back = std::min(2 * back, begins.size())) {
    const size_t first = begins.size() - std::min(back, begins.size());
    const int follow = begins.empty() ? 0 : count_tokens(part(first, begins.size()));
    if (follow >= tokens) {
      enough = first;
    } else if (first == 0) {
      return resource_exhausted("text " + document.name + " has " + std::to_string(follow) +
                                " tokens, fewer than the " + std::to_string(tokens) + " of a slice");
    } else {
      too_late = first;
    }
  }
  while (too_late - enough > 1) {
    const size_t middle = enough + (too_late - enough) / 2;
    (count_tokens(part(middle, begins.size())) >= tokens ? enough : too_late) = middle;
  }

  const size_t first = Random::named(seed, document.name).below(enough + 1);
  const size_t last = lines_from(first);
  if (last == first)
    return resource_exhausted("text " + document.name + ": line " + std::to_string(first + 1) + " alone has " +
                              std::to_string(count_tokens(part(first, first + 1))) + " tokens, more than the " +
                              std::to_string(tokens) + " of a slice");
  return std::string(part(first, last));
}

}  // namespace varve::eval
