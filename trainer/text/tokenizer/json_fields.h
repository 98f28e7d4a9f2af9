// Members of the objects of a tokenizer.json, with defaults.
//
// A member that is missing or of the wrong type throws FieldError, which names it and ends at the
// one boundary in tokenizer_json.cc. Pure functions; any thread.
#pragma once

#include <stdexcept>
#include <string>

#include "common/base/json.h"
#include "common/base/result.h"

namespace muster {

using Json = nlohmann::json;

class FieldError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sequences of steps may hold sequences; deeper ones are no tokenizer's.
inline constexpr int kMaxStepDepth = 8;

// null where the object has no such member.
const Json& MemberOrNull(const Json& object, const char* key);
const Json& Member(const Json& object, const char* key);

// null counts as absent.
bool BoolOr(const Json& object, const char* key, bool fallback);
const std::string& StringOf(const Json& object, const char* key);
const Json::array_t& ListOf(const Json& object, const char* key);

// "without a type" where there is none.
std::string TypeOf(const Json& object);

// A string of one character.
const std::string& CharacterOf(const Json& object, const char* key);

// always | first | never: of a Metaspace, which older files describe by `add_prefix_space` alone.
Result<std::string> MetaspaceSchemeOf(const Json& object);

}  // namespace muster
