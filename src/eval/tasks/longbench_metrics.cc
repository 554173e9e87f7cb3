#include "eval/tasks/longbench_metrics.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

namespace varve::eval {
namespace {

using Words = std::vector<std::string>;

bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

char to_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

Words words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::vector<Words> sentences_of(std::string_view text) {
  std::vector<Words> sentences;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    if (end > begin) sentences.push_back(words_of(text.substr(begin, end - begin)));
    // White space behind the last full stop counts as an empty word there.
    if (end > begin && sentences.back().empty()) sentences.back().emplace_back();
    begin = end + 1;
  }
  return sentences;
}

std::set<std::string> different_words(const std::vector<Words>& sentences) {
  std::set<std::string> all;
  for (const Words& words : sentences) all.insert(words.begin(), words.end());
  return all;
}

/// Adds the words of a longest common subsequence; among several, the one found from the ends by going back in `a` only
/// where that is strictly longer.
void add_common(const Words& a, const Words& b, std::set<std::string>& to) {
  const size_t width = b.size() + 1;
  std::vector<int> length((a.size() + 1) * width);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j)
      length[i * width + j] = a[i - 1] == b[j - 1] ? length[(i - 1) * width + j - 1] + 1
                                                   : std::max(length[(i - 1) * width + j], length[i * width + j - 1]);
  for (size_t i = a.size(), j = b.size(); i > 0 && j > 0;) {
    if (a[i - 1] == b[j - 1]) {
      to.insert(a[i - 1]);
      --i, --j;
    } else if (length[(i - 1) * width + j] > length[i * width + j - 1]) {
      --i;
    } else {
      --j;
    }
  }
}

}  // namespace

std::string normalized_answer(std::string_view text) {
  std::string plain;
  for (const char c : text)
    if (!is_punctuation(c)) plain += to_lower(c);
  std::string out;
  for (const std::string& word : words_of(plain))
    if (word != "a" && word != "an" && word != "the") out += (out.empty() ? "" : " ") + word;
  return out;
}

double qa_f1(std::string_view answer, std::string_view reference) {
  const Words said = words_of(normalized_answer(answer)), wanted = words_of(normalized_answer(reference));
  std::map<std::string, int> left;
  for (const std::string& word : wanted) ++left[word];
  int common = 0;
  for (const std::string& word : said)
    if (const auto it = left.find(word); it != left.end() && it->second-- > 0) ++common;
  if (common == 0) return 0;
  const double precision = double(common) / double(said.size()), recall = double(common) / double(wanted.size());
  return 2 * precision * recall / (precision + recall);
}

double rouge_l(std::string_view answer, std::string_view reference) {
  const std::vector<Words> said = sentences_of(answer), wanted = sentences_of(reference);
  const size_t said_words = different_words(said).size(), wanted_words = different_words(wanted).size();
  if (said_words == 0 || wanted_words == 0) return 0;
  std::set<std::string> common;
  for (const Words& sentence : wanted)
    for (const Words& other : said) add_common(sentence, other, common);
  const double precision = double(common.size()) / double(said_words);
  const double recall = double(common.size()) / double(wanted_words);
  return precision + recall == 0 ? 0 : 2 * precision * recall / (precision + recall);
}

double classification(std::string_view answer, std::string_view reference, const std::vector<std::string>& classes) {
  int named = 0;
  bool right = false;
  for (const std::string& name : classes) {
    if (answer.find(name) == std::string_view::npos) continue;
    if (name == reference) {
      right = true;
    } else if (reference.find(name) != std::string_view::npos) {
      continue;
    }
    ++named;
  }
  return right ? 1.0 / named : 0;
}

}  // namespace varve::eval
