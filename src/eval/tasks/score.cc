#include "eval/tasks/score.h"

#include <algorithm>
#include <optional>

#include "eval/tasks/longbench_metrics.h"

namespace varve::eval {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

double share_contained(const Item& item, const std::string& answer) {
  const std::string said = lower(answer);
  int found = 0;
  for (const std::string& reference : item.references) found += said.find(lower(reference)) != std::string::npos;
  return double(found) / double(item.references.size());
}

/// Where `name` stands in `text` as a word of its own; npos when it does not.
size_t find_word(const std::string& text, const std::string& name) {
  const auto is_word = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || static_cast<unsigned char>(c) >= 0x80;
  };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return at;
  }
  return std::string::npos;
}

/// The choice named first, the longest of those that begin there.
std::optional<std::string> first_candidate(const Item& item, const std::string& answer) {
  const std::string said = lower(answer);
  size_t best = std::string::npos;
  std::optional<std::string> first;
  for (const std::string& choice : item.choices) {
    const size_t at = choice.empty() ? std::string::npos : find_word(said, lower(choice));
    if (at == std::string::npos || at > best) continue;
    if (at == best && first && first->size() >= choice.size()) continue;
    best = at;
    first = choice;
  }
  return first;
}

/// The first number, "4,821" as 4821; empty when there is none.
std::string first_number(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && !is_digit(text[at])) ++at;
  std::string number;
  bool grouped = false;
  for (; at < text.size(); ++at) {
    if (is_digit(text[at])) {
      number += text[at];
      continue;
    }
    const auto digits = [&](size_t from) {
      size_t end = from;
      while (end < text.size() && is_digit(text[end])) ++end;
      return end - from;
    };
    // A comma between thousands stands behind three digits at most, or behind another group of three.
    if (text[at] != ',' || digits(at + 1) != 3 || (number.size() > 3 && !grouped)) break;
    grouped = true;
  }
  return number;
}

std::string first_line(const std::string& text) {
  const size_t begin = std::min(text.find_first_not_of('\n'), text.size());
  return text.substr(begin, text.find('\n', begin) - begin);
}

template <typename Metric>
double best(const Item& item, const std::string& answer, const Metric& metric) {
  double highest = 0;
  for (const std::string& reference : item.references) highest = std::max(highest, metric(answer, reference));
  return highest;
}

double begun(const std::string& answer, const std::string& reference) {
  if (reference.empty()) return 0;
  const auto [end, unused] = std::mismatch(
      reference.begin(), reference.begin() + static_cast<int64_t>(std::min(reference.size(), answer.size())),
      answer.begin());
  return double(end - reference.begin()) / double(reference.size());
}

}  // namespace

char choice_letter(std::string_view answer) {
  constexpr std::string_view kSaid = "The correct answer is ";
  std::string plain(answer);
  plain.erase(std::remove(plain.begin(), plain.end(), '*'), plain.end());
  for (const bool bracketed : {true, false}) {
    const std::string lead = std::string(kSaid) + (bracketed ? "(" : "");
    for (size_t at = plain.find(lead); at != std::string::npos; at = plain.find(lead, at + 1)) {
      const size_t letter = at + lead.size();
      if (letter >= plain.size() || plain[letter] < 'A' || plain[letter] > 'D') continue;
      if (bracketed && (letter + 1 >= plain.size() || plain[letter + 1] != ')')) continue;
      return plain[letter];
    }
  }
  return 0;
}

double score(const Item& item, const std::string& given) {
  if (item.references.empty()) return 0;
  const std::string answer = item.first_line_only ? first_line(given) : given;
  const std::string& reference = item.references[0];
  switch (item.scorer) {
    case Scorer::kContains: return share_contained(item, answer);
    case Scorer::kContainsAny: return share_contained(item, answer) > 0 ? 1 : 0;
    case Scorer::kFirstCandidate: return first_candidate(item, answer) == reference ? 1 : 0;
    case Scorer::kFirstNumber: return first_number(answer) == reference ? 1 : 0;
    case Scorer::kChoice: return answer == reference ? 1 : 0;
    case Scorer::kChoiceLetter: return std::string(1, choice_letter(answer)) == reference ? 1 : 0;
    case Scorer::kF1: return best(item, answer, qa_f1);
    case Scorer::kRougeL: return best(item, answer, rouge_l);
    case Scorer::kAccuracy:
      return best(item, answer, [&](const std::string& said, const std::string& wanted) {
        return classification(said, wanted, item.choices);
      });
    case Scorer::kCopy: return begun(answer, reference);
  }
  return 0;
}

}  // namespace varve::eval
