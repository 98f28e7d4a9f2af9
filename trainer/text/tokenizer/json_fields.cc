#include "trainer/text/tokenizer/json_fields.h"

#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

[[noreturn]] void ThrowWrongType(const char* key, const Json& value, const char* wanted) {
  throw FieldError(std::string(key) + " is " + value.type_name() + ", not " + wanted);
}

}  // namespace

const Json& MemberOrNull(const Json& object, const char* key) {
  static const Json null;
  const auto it = object.find(key);
  return it == object.end() ? null : *it;
}

const Json& Member(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key))
    throw FieldError(std::string("there is no ") + key);
  return object[key];
}

bool BoolOr(const Json& object, const char* key, bool fallback) {
  const Json& value = MemberOrNull(object, key);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) ThrowWrongType(key, value, "true or false");
  return value.get<bool>();
}

const std::string& StringOf(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  if (!value.is_string()) ThrowWrongType(key, value, "a string");
  return value.get_ref<const std::string&>();
}

const Json::array_t& ListOf(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  if (!value.is_array()) ThrowWrongType(key, value, "a list");
  return value.get_ref<const Json::array_t&>();
}

std::string TypeOf(const Json& object) {
  const Json& type = MemberOrNull(object, "type");
  return type.is_string() ? type.get<std::string>() : "without a type";
}

const std::string& CharacterOf(const Json& object, const char* key) {
  const std::string& text = StringOf(object, key);
  if (text.empty() || static_cast<std::size_t>(DecodeUtf8(text).length) != text.size())
    throw FieldError(std::string(key) + " is \"" + text + "\", not one character");
  return text;
}

Result<std::string> MetaspaceSchemeOf(const Json& object) {
  const bool prefix = BoolOr(object, "add_prefix_space", true);
  const bool has_scheme = !MemberOrNull(object, "prepend_scheme").is_null();
  const std::string scheme = has_scheme ? StringOf(object, "prepend_scheme")
                             : prefix   ? "always"
                                        : "never";
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return Unimplemented("Metaspace with the prepend_scheme " + scheme + " is not supported");
  if (!prefix && scheme != "never")
    return InvalidArgument("Metaspace has the prepend_scheme " + scheme +
                           ", but add_prefix_space is false");
  return scheme;
}

}  // namespace muster
