#pragma once
// Whether two models mean the same by a token id.

#include "model/model.h"
#include "varve/status.h"

namespace varve::model {

/// Ok when both vocabularies have as many tokens, with the same texts and the same ends of a reply. Else
/// kInvalidArgument with the numbers and the first token that differs.
Status check_same_vocabulary(const Model& a, const Model& b);

}  // namespace varve::model
