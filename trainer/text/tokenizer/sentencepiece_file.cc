#include "trainer/text/tokenizer/sentencepiece_file.h"

#include <cmath>

#include "trainer/text/tokenizer/utf8.h"
#include "trainer/text/tokenizer/wire_reader.h"

namespace muster {
namespace {

// Calls `take` with every field of the message.
template <typename Take>
Status ForEachField(std::string_view message, const Take& take) {
  WireReader reader(message);
  while (true) {
    MUSTER_ASSIGN_OR_RETURN(const auto field, reader.Next());
    if (!field) return OkStatus();
    MUSTER_RETURN_IF_ERROR(take(*field));
  }
}

Status TakeInt(const WireField& field, const char* name, std::int64_t* out) {
  MUSTER_ASSIGN_OR_RETURN(*out, field.Int(name));
  return OkStatus();
}

Status TakeBool(const WireField& field, const char* name, bool* out) {
  MUSTER_ASSIGN_OR_RETURN(*out, field.Bool(name));
  return OkStatus();
}

Status TakeString(const WireField& field, const char* name, std::string* out) {
  MUSTER_ASSIGN_OR_RETURN(const std::string_view bytes, field.Bytes(name));
  *out = std::string(bytes);
  return OkStatus();
}

Status CheckPiece(const SentencePiece& piece) {
  if (piece.text.empty()) return InvalidArgument("its text is empty");
  if (ReplaceInvalidUtf8(piece.text) != piece.text) return InvalidArgument("its text is not UTF-8");
  if (std::isnan(piece.score)) return InvalidArgument("its score is no number");
  return OkStatus();
}

Status ParsePiece(std::string_view message, SentencePiece* piece) {
  MUSTER_RETURN_IF_ERROR(ForEachField(message, [&](const WireField& field) -> Status {
    switch (field.number) {
      case 1: return TakeString(field, "piece", &piece->text);
      case 2: {
        MUSTER_ASSIGN_OR_RETURN(piece->score, field.Float("score"));
        return OkStatus();
      }
      case 3: {
        MUSTER_ASSIGN_OR_RETURN(const std::int64_t type, field.Int("type"));
        piece->type = static_cast<PieceType>(type);
        return OkStatus();
      }
      default: return OkStatus();
    }
  }));
  return CheckPiece(*piece);
}

Status ParseTrainerSpec(std::string_view message, SentencePieceFile* file) {
  return ForEachField(message, [&](const WireField& field) {
    switch (field.number) {
      case 3: return TakeInt(field, "model_type", &file->model_type);
      case 24: return TakeBool(field, "treat_whitespace_as_suffix", &file->whitespace_as_suffix);
      case 35: return TakeBool(field, "byte_fallback", &file->byte_fallback);
      case 41: return TakeInt(field, "bos_id", &file->bos_id);
      case 42: return TakeInt(field, "eos_id", &file->eos_id);
      default: return OkStatus();
    }
  });
}

Status ParseNormalizerSpec(std::string_view message, SentencePieceFile* file) {
  return ForEachField(message, [&](const WireField& field) {
    switch (field.number) {
      case 2: return TakeString(field, "precompiled_charsmap", &file->charsmap);
      case 3: return TakeBool(field, "add_dummy_prefix", &file->add_dummy_prefix);
      case 4: return TakeBool(field, "remove_extra_whitespaces", &file->remove_extra_whitespaces);
      case 5: return TakeBool(field, "escape_whitespaces", &file->escape_whitespaces);
      default: return OkStatus();
    }
  });
}

}  // namespace

Result<SentencePieceFile> ParseSentencePieceFile(std::string_view bytes) {
  SentencePieceFile file;
  MUSTER_RETURN_IF_ERROR(ForEachField(bytes, [&](const WireField& field) -> Status {
    if (field.number < 1 || field.number > 3) return OkStatus();
    if (field.number == 1) {
      const std::string name = "piece " + std::to_string(file.pieces.size());
      MUSTER_ASSIGN_OR_RETURN(const std::string_view message, field.Bytes(name.c_str()));
      return ParsePiece(message, &file.pieces.emplace_back()).WithContext(name);
    }
    const char* name = field.number == 2 ? "trainer_spec" : "normalizer_spec";
    MUSTER_ASSIGN_OR_RETURN(const std::string_view message, field.Bytes(name));
    const Status parsed =
        field.number == 2 ? ParseTrainerSpec(message, &file) : ParseNormalizerSpec(message, &file);
    return parsed.WithContext(name);
  }));
  if (file.pieces.empty()) return InvalidArgument("there are no pieces in it");
  return file;
}

}  // namespace muster
