#pragma once
// The metrics of LongBench (Bai et al., "LongBench: A bilingual, multitask benchmark for long context understanding",
// 2023) for English, each of one answer against one reference.

#include <string>
#include <string_view>
#include <vector>

namespace varve::eval {

/// Lower case, without ASCII punctuation and the articles a, an, the, words one space apart (SQuAD's normalisation).
std::string normalized_answer(std::string_view text);

/// F1 of the normalised words as multisets.
double qa_f1(std::string_view answer, std::string_view reference);

/// ROUGE-L of the Python package that LongBench uses (`rouge`, summary level): texts are cut into sentences at full
/// stops and words at white space; of each reference sentence the words of its longest common subsequences with all
/// answer sentences are joined, and their number is held against the numbers of different words of either text. 0 when
/// either text has no word.
double rouge_l(std::string_view answer, std::string_view reference);

/// 1 / (classes that the answer names) when the reference is one of them, else 0. A class whose name is a part of the
/// reference's does not count.
double classification(std::string_view answer, std::string_view reference, const std::vector<std::string>& classes);

}  // namespace varve::eval
