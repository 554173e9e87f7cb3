#include "eval/tasks/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/sha256.h"
#include "eval/tasks/score.h"
#include "eval/tasks/sentences.h"
#include "eval/tasks/support.h"
#include "model/model.h"
#include "model/text.h"
#include "support/models.h"

namespace varve::eval {
namespace {

using testing::count_pieces;
using testing::made_document;

/// A document with entries as well, so that every task can use it.
Document mixed_document() {
  Document document = made_document("mixed", 6000);
  std::string with_entries;
  size_t line = 0;
  for (const char c : document.text) {
    with_entries += c;
    if (c == '\n' && ++line % 5 == 0)
      with_entries += "#define NAME_" + std::to_string(line) + " " + std::to_string(line * 7919 % 100003) + "\n";
  }
  document.text = with_entries;
  return document;
}

TaskOptions options(int length, int n = 2, uint64_t seed = 7) {
  TaskOptions made;
  made.documents = {mixed_document()};
  made.count_tokens = count_pieces;
  made.length = length;
  made.template_tokens = 20;
  made.n = n;
  made.seed = seed;
  return made;
}

std::vector<std::pair<std::string, std::string>> all_tasks() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& suite : suite_names()) {
    const auto names = task_names(suite);
    for (const std::string& task : *names) all.emplace_back(suite, task);
  }
  return all;
}

int answer_budget(const Item& item, const CountTokens& count) {
  int tokens = item.answer_tokens;
  if (tokens == 0)
    for (const auto* texts : {&item.references, &item.choices})
      for (const std::string& text : *texts) tokens = std::max(tokens, count(text));
  return tokens;
}

std::vector<Item> items_of(const std::string& suite, const std::string& task, const TaskOptions& given) {
  Result<std::vector<Item>> items = make_items(suite, task, given);
  EXPECT_TRUE(items.ok()) << task << ": " << items.status().message();
  return items.ok() ? *items : std::vector<Item>();
}

size_t occurrences(const std::string& text, const std::string& of) {
  size_t count = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++count;
  return count;
}

TEST(Tasks, EveryTaskFillsTheLengthAndKeepsTheBudget) {
  for (const auto& [suite, task] : all_tasks()) {
    for (const int length : {2500, 6000}) {
      const TaskOptions given = options(length);
      for (const Item& item : items_of(suite, task, given)) {
        const int answer = answer_budget(item, count_pieces);
        const int apart = given.template_tokens + count_pieces(item.context) + count_pieces(item.question) +
                          count_pieces(item.answer_prefix) + answer;
        const int together =
            given.template_tokens + count_pieces(item.context + item.question + item.answer_prefix) + answer;
        EXPECT_LE(apart, length) << item.id;
        EXPECT_LE(together, length) << item.id;
        EXPECT_GE(apart, length - 400) << item.id;  // echo and docmcq keep that much for their questions
        EXPECT_EQ(item.length, length);
        EXPECT_EQ(item.task, task);
      }
    }
  }
}

TEST(Tasks, IdsAreDifferentAndGroupsShareTheContext) {
  std::set<std::string> ids;
  std::map<std::string, std::string> contexts;
  for (const auto& [suite, task] : all_tasks()) {
    for (const Item& item : items_of(suite, task, options(3000))) {
      EXPECT_TRUE(ids.insert(suite + item.id).second) << item.id;
      const auto [known, added] = contexts.emplace(suite + item.group, item.context);
      EXPECT_EQ(known->second, item.context) << item.id;
      EXPECT_FALSE(item.references.empty());
      for (const double depth : item.depths) {
        EXPECT_GE(depth, 0);
        EXPECT_LE(depth, 1);
      }
      if (!item.choices.empty()) {
        EXPECT_EQ(std::count(item.choices.begin(), item.choices.end(), item.references[0]), 1) << item.id;
      }
    }
  }
  // Both questions of linkbench and the three of docmcq are about the same haystacks: 2 of each.
  EXPECT_EQ(contexts.size(), 2u * (11 + 5 + 1 + 1));
}

TEST(Tasks, SameOptionsSameItemsAndMoreHaystacksBeginWithTheSame) {
  for (const auto& [suite, task] : all_tasks()) {
    const std::vector<Item> two = items_of(suite, task, options(2500, 2)),
                            three = items_of(suite, task, options(2500, 3));
    ASSERT_GT(three.size(), two.size()) << task;
    for (size_t i = 0; i < two.size(); ++i) {
      EXPECT_EQ(two[i].id, three[i].id);
      EXPECT_EQ(two[i].context + two[i].question, three[i].context + three[i].question) << two[i].id;
      EXPECT_EQ(two[i].references, three[i].references);
    }
    const std::vector<Item> other = items_of(suite, task, options(2500, 2, 8));
    EXPECT_NE(two[0].context, other[0].context) << task;
    EXPECT_NE(two[0].context, two.back().context) << task;
  }
}

/// What the answer must be is in the haystack, and a right answer scores 1 where a wrong one scores 0.
TEST(Tasks, ReferencesAreInTheContextAndScore) {
  for (const auto& [suite, task] : all_tasks()) {
    for (const Item& item : items_of(suite, task, options(3000))) {
      std::string right = " ";
      for (const std::string& reference : item.references) right += reference + ", ";
      if (item.scorer == Scorer::kChoice || item.scorer == Scorer::kCopy) right = item.references[0];
      EXPECT_EQ(score(item, right), 1) << item.id;
      EXPECT_EQ(score(item, "I do not know."), 0) << item.id;
      for (std::string reference : item.references) {
        if (suite == "docmcq") reference.pop_back();        // the closing mark
        if (task == "after" || task == "before") continue;  // their line breaks became spaces
        EXPECT_NE(item.context.find(reference), std::string::npos) << item.id << ": " << reference;
      }
    }
  }
}

TEST(Ruler, NeedlesAreAsManyAsTheTaskSays) {
  const std::string needle = "One of the special magic ";
  const std::pair<const char*, size_t> counts[] = {{"niah_single_1", 1},   {"niah_single_2", 1},
                                                   {"niah_single_3", 1},   {"niah_multikey_1", 4},
                                                   {"niah_multivalue", 4}, {"niah_multiquery", 4}};
  for (const auto& [task, count] : counts)
    for (const Item& item : items_of("ruler", task, options(3000)))
      EXPECT_EQ(occurrences(item.context, needle), count) << item.id;
  EXPECT_EQ(items_of("ruler", "niah_multivalue", options(3000))[0].references.size(), 4u);
  EXPECT_EQ(items_of("ruler", "niah_multiquery", options(3000))[0].references.size(), 4u);
  EXPECT_EQ(items_of("ruler", "niah_multikey_1", options(3000))[0].references.size(), 1u);
}

TEST(Ruler, HayOfNeedlesHasNothingElse) {
  for (const char* task : {"niah_multikey_2", "niah_multikey_3"}) {
    for (const Item& item : items_of("ruler", task, options(3000))) {
      std::istringstream lines(item.context);
      std::string line;
      std::getline(lines, line);  // the instruction
      std::set<std::string> all;
      int asked = 0;
      while (std::getline(lines, line)) {
        EXPECT_EQ(line.find("One of the special magic "), 0u) << line;
        EXPECT_TRUE(all.insert(line).second) << line;
        asked += line.find(item.references[0]) != std::string::npos;
      }
      EXPECT_EQ(asked, 1);
      EXPECT_GT(all.size(), 30u);
    }
  }
}

TEST(Ruler, ProseNeedlesLieAtSentenceBoundariesAtDifferentDepths) {
  const std::string needle = "One of the special magic ";
  for (const char* task : {"niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery"}) {
    for (const Item& item : items_of("ruler", task, options(3000, 8))) {
      EXPECT_EQ(std::set<double>(item.depths.begin(), item.depths.end()).size(), item.depths.size());
      EXPECT_EQ(item.depths.size(), item.references.size());
      const size_t begin = item.context.find('\n') + 1;
      for (size_t at = item.context.find(needle); at != std::string::npos; at = item.context.find(needle, at + 1)) {
        const std::string_view before = trimmed(std::string_view(item.context).substr(begin, at - begin));
        EXPECT_TRUE(before.empty() || before.back() == '.' || std::isdigit(static_cast<unsigned char>(before.back())))
            << item.id << ": ..." << before.substr(before.size() - std::min<size_t>(before.size(), 40));
      }
    }
  }
}

TEST(Ruler, ChainIsInOrderAndFiveLong) {
  for (const Item& item : items_of("ruler", "vt", options(2500))) {
    ASSERT_EQ(item.references.size(), 5u);
    EXPECT_TRUE(std::is_sorted(item.depths.begin(), item.depths.end()));
    const size_t start = item.context.rfind("VAR " + item.references[0] + " = ");
    ASSERT_NE(start, std::string::npos);
    EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(item.context[start + 12])));
    for (size_t i = 1; i < 5; ++i)
      EXPECT_EQ(occurrences(item.context, "VAR " + item.references[i] + " = VAR " + item.references[i - 1] + "\n"), 1u);
  }
}

/// Words of the part after the last "instruction" line, by how often they come.
std::vector<std::pair<int, std::string>> ranked_words(const std::string& text) {
  std::map<std::string, int> counts;
  std::istringstream in(text);
  for (std::string word; in >> word;)
    if (!std::isdigit(static_cast<unsigned char>(word[0]))) ++counts[word];
  std::vector<std::pair<int, std::string>> ranked;
  for (const auto& [word, count] : counts) ranked.emplace_back(count, word);
  std::sort(ranked.rbegin(), ranked.rend());
  return ranked;
}

TEST(Ruler, CommonWordsAreTheTenMostCommon) {
  for (const int length : {2500, 8000}) {
    for (const Item& item : items_of("ruler", "cwe", options(length))) {
      const auto ranked = ranked_words(item.context.substr(item.context.rfind("Below is a numbered list")).substr(132));
      const int common = length < 4096 ? 6 : 30, uncommon = length < 4096 ? 1 : 3;
      std::set<std::string> top;
      for (size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(ranked[i].first, common);
        top.insert(ranked[i].second);
      }
      EXPECT_EQ(ranked[10].first, uncommon);
      EXPECT_EQ(top, std::set<std::string>(item.references.begin(), item.references.end()));
    }
  }
}

TEST(Ruler, FrequentWordsFollowTheDots) {
  for (const Item& item : items_of("ruler", "fwe", options(3000))) {
    const auto ranked = ranked_words(item.context.substr(item.context.find("coded words. ") + 13));
    EXPECT_EQ(ranked[0].second, "....");
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ranked[i + 1].second, item.references[i]);
    EXPECT_GT(ranked[3].first, ranked[4].first);
  }
}

TEST(Natural, DepthsAreThoseOfTheTask) {
  const std::vector<Item> sweep = items_of("natural", "depth_sweep", options(8000, 1));
  ASSERT_EQ(sweep.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(sweep[i].depths[0], (double(i) + 0.5) / 12, 0.01);

  const std::vector<Item> people = items_of("natural", "relational", options(8000, 1));
  ASSERT_EQ(people.size(), 4u);
  const double percent[] = {0.15, 0.38, 0.61, 0.84};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(people[i].depths[0], percent[i], 0.01);

  for (const Item& item : items_of("natural", "multi_code", options(8000, 8))) {
    ASSERT_EQ(item.depths.size(), 4u);
    for (size_t i = 1; i < 4; ++i) EXPECT_GE(item.depths[i] - item.depths[i - 1], 0.09) << item.id;
  }

  const std::vector<Item> table = items_of("natural", "digit_table", options(8000, 1));
  ASSERT_EQ(table.size(), 60u);
  EXPECT_EQ(occurrences(table[0].context, "LEDGER ENTRY QX-"), 60u);
  for (size_t i = 1; i < 60; ++i) EXPECT_GT(table[i].depths[0], table[i - 1].depths[0]);

  for (const Item& item : items_of("natural", "linkbench_chain", options(8000, 1))) {
    EXPECT_NEAR(item.depths[0], 1.0 / 3, 1.0 / 12 + 0.01);
    EXPECT_NEAR(item.depths[1], 2.0 / 3, 1.0 / 12 + 0.01);
    EXPECT_EQ(item.choices.size(), 16u);
  }
}

TEST(Natural, LinksLeadFromThePersonToTheCity) {
  const std::vector<Item> chain = items_of("natural", "linkbench_chain", options(5000, 1));
  const std::vector<Item> direct = items_of("natural", "linkbench_direct", options(5000, 1));
  ASSERT_EQ(chain.size(), 16u);
  ASSERT_EQ(direct.size(), 16u);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(chain[i].references, direct[i].references);
    const std::string& context = chain[i].context;
    const std::string person = chain[i].answer_prefix.substr(0, chain[i].answer_prefix.find(" works in"));
    const std::string works = person + " works at the ";
    ASSERT_EQ(occurrences(context, works), 1u);
    const size_t at = context.find(works) + works.size();
    const std::string institute = context.substr(at, context.find('.', at) - at);
    EXPECT_EQ(occurrences(context, "The " + institute + " is located in " + chain[i].references[0] + "."), 1u);
    EXPECT_NE(direct[i].question.find(institute), std::string::npos);
  }
}

TEST(Docmcq, NeighboursAreNeighbours) {
  for (const char* task : {"after", "before"}) {
    const std::vector<Item> items = items_of("docmcq", task, options(5000, 2));
    EXPECT_EQ(items.size(), 16u);
    for (const Item& item : items) {
      EXPECT_EQ(std::set<std::string>(item.choices.begin(), item.choices.end()).size(), 4u);
      std::string flat = item.context;
      std::replace(flat.begin(), flat.end(), '\n', ' ');
      while (flat.find("  ") != std::string::npos) flat.erase(flat.find("  "), 1);
      const size_t quote = item.question.find('"') + 1;
      const std::string given = item.question.substr(quote, item.question.rfind('"') - quote);
      const std::string answer = item.references[0].substr(0, item.references[0].size() - 1);
      const std::string pair = task == std::string("after") ? given + " " + answer : answer + " " + given;
      EXPECT_NE(flat.find(pair), std::string::npos) << item.id << "\n" << pair;
    }
  }
}

TEST(Docmcq, EntriesNeedATextThatHasThem) {
  TaskOptions given = options(3000, 1);
  for (const Item& item : items_of("docmcq", "entry", given)) {
    const size_t at = item.question.find("NAME_");
    const std::string name = item.question.substr(at, item.question.find('?') - at);
    const std::string value = item.references[0].substr(0, item.references[0].size() - 1);
    EXPECT_NE(item.context.find("#define " + name + " " + value + "\n"), std::string::npos);
  }
  given.documents = {made_document("prose", 3000)};
  const auto none = make_items("docmcq", "entry", given);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(none.status().message().find("entries"), std::string::npos);
}

TEST(Echo, SpansOfTheFirstHalfComeOnce) {
  const std::vector<Item> items = items_of("echo", "echo", options(6000, 2));
  EXPECT_EQ(items.size(), 16u);
  for (const Item& item : items) {
    EXPECT_EQ(occurrences(item.context, item.answer_prefix), 1u);
    EXPECT_EQ(occurrences(item.context, item.answer_prefix + item.references[0]), 1u);
    EXPECT_LT(item.depths[0], 0.6);
    EXPECT_EQ(item.answer_tokens, 0);
  }
}

TEST(Tasks, DocumentsTakeTurns) {
  TaskOptions given = options(2500, 3);
  given.documents = {made_document("first", 3000), made_document("second", 3000)};
  const std::vector<Item> items = items_of("natural", "multi_code", given);
  const auto middle = [](const Item& item) { return item.context.substr(item.context.size() / 2, 60); };
  EXPECT_NE(given.documents[0].text.find(middle(items[0])), std::string::npos);
  EXPECT_NE(given.documents[1].text.find(middle(items[1])), std::string::npos);
  EXPECT_NE(given.documents[0].text.find(middle(items[2])), std::string::npos);
}

void expect_refused(const std::string& suite, const std::string& task, const TaskOptions& given, StatusCode code,
                    const std::vector<std::string>& says) {
  const auto items = make_items(suite, task, given);
  ASSERT_FALSE(items.ok()) << suite << " " << task;
  EXPECT_EQ(items.status().code(), code) << items.status().message();
  for (const std::string& word : says)
    EXPECT_NE(items.status().message().find(word), std::string::npos) << items.status().message();
}

TEST(Tasks, WhatCannotBeMadeIsRefusedWithTheNumbers) {
  const StatusCode invalid = StatusCode::kInvalidArgument, exhausted = StatusCode::kResourceExhausted;
  expect_refused("rulr", "vt", options(2500), invalid, {"'rulr'", "ruler, natural, docmcq, echo"});
  expect_refused("ruler", "niah", options(2500), invalid, {"'niah'", "niah_single_1", "fwe"});
  expect_refused("ruler", "vt", options(2500, 0), invalid, {"n is 0"});
  expect_refused("ruler", "vt", options(2500, -3), invalid, {"n is -3"});
  expect_refused("ruler", "vt", options(0), invalid, {"length is 0"});
  TaskOptions none = options(2500);
  none.documents.clear();
  expect_refused("natural", "relational", none, invalid, {"relational", "needs a text"});
  expect_refused("ruler", "cwe", none, invalid, {"cwe", "needs a text"});
  EXPECT_TRUE(make_items("ruler", "niah_multikey_3", none).ok());
  none.documents = {{"blank", " \n\n "}};
  expect_refused("natural", "relational", none, invalid, {"blank", "empty"});
  none.documents = {made_document("short", 50)};
  expect_refused("natural", "relational", none, exhausted, {"short", "2500"});
  expect_refused("ruler", "niah_single_2", none, exhausted, {"short", "2500"});
  none.count_tokens = nullptr;
  expect_refused("natural", "relational", none, invalid, {"count tokens"});
  for (const auto& [suite, task] : all_tasks()) expect_refused(suite, task, options(60), exhausted, {"60", task});
}

std::string hash_of(const std::vector<Item>& items) {
  Sha256 hash;
  const auto add = [&](const std::string& text) { hash.update(text.c_str(), text.size() + 1); };
  for (const Item& item : items) {
    for (const std::string* text : {&item.id, &item.group, &item.context, &item.question, &item.answer_prefix})
      add(*text);
    for (const std::string& text : item.references) add(text);
    for (const std::string& text : item.choices) add(text);
  }
  return hash.hex().substr(0, 16);
}

// A change of these is a change of the benchmark: results before and after it cannot be compared.
TEST(Tasks, ItemsAreTheSameEverywhere) {
  const std::map<std::string, std::string> expected = {
      {"niah_single_1", "7e472c883549f116"},
      {"niah_single_2", "743555e9184dd484"},
      {"niah_single_3", "be9ed8e30c85ea2f"},
      {"niah_multikey_1", "eb81a0bf1394b19c"},
      {"niah_multikey_2", "2534bd35f9c0c18c"},
      {"niah_multikey_3", "efc09637815f1056"},
      {"niah_multivalue", "dd2616490c84aeea"},
      {"niah_multiquery", "6104a0c9af8dfed9"},
      {"vt", "f698430ab00fb0f2"},
      {"cwe", "f1518d6b6ad34614"},
      {"fwe", "515ed829a180fe95"},
      {"depth_sweep", "324f7d3a4d6dd196"},
      {"multi_code", "7fbad7d147ac34b9"},
      {"relational", "5dc24699c26ab2b5"},
      {"linkbench_direct", "b3f9decf015c6dde"},
      {"linkbench_chain", "b1aad6270b2c06f6"},
      {"digit_table", "4eb4355ae398b638"},
      {"after", "29af1c86cd9f1367"},
      {"before", "7dd1f7ccc925cc8d"},
      {"entry", "59fa85036f20a29c"},
      {"echo", "9caf31536c51b547"},
  };
  for (const auto& [suite, task] : all_tasks()) {
    const std::string hash = hash_of(items_of(suite, task, options(2500)));
    const auto known = expected.find(task);
    EXPECT_TRUE(known != expected.end() && known->second == hash) << "{\"" << task << "\", \"" << hash << "\"},";
  }
}

TEST(Tasks, BudgetHoldsByARealTokenizer) {
  VARVE_MODEL_OR_SKIP(path, "smollm2-135m");
  const auto model = model::Model::load(path, {.vocab_only = true});
  ASSERT_TRUE(model.ok()) << model.status().message();
  TaskOptions given = options(2048, 1);
  given.count_tokens = [&](std::string_view text) {
    return static_cast<int>(model::tokenize(**model, text, false, false)->size());
  };
  for (const auto& [suite, task] : all_tasks()) {
    for (const Item& item : items_of(suite, task, given)) {
      const int answer = answer_budget(item, given.count_tokens);
      const int together = given.count_tokens(item.context + item.question + item.answer_prefix);
      EXPECT_LE(given.template_tokens + together + answer, given.length) << item.id;
      EXPECT_GE(given.template_tokens + together + answer, given.length - 400) << item.id;
    }
  }
}

}  // namespace
}  // namespace varve::eval
