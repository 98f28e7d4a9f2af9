#include "coordinator/store/sqlite_database.h"

#include <fcntl.h>
#include <sqlite3.h>

#include <cerrno>
#include <utility>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

// What another process holds it for: the log's index is built anew, or a person looks inside.
constexpr int kBusyMillis = 5000;

Status SqliteStatus(int code, const std::string& message) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return Unavailable(message);
    case SQLITE_FULL: return ResourceExhausted(message + "; make room there");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return DataLoss(message);
    case SQLITE_PERM:
    case SQLITE_READONLY: return PermissionDenied(message);
    default: return Internal(message);
  }
}

Status LastError(sqlite3* database) {
  const char* file = sqlite3_db_filename(database, "main");
  const Status status = SqliteStatus(sqlite3_extended_errcode(database), sqlite3_errmsg(database));
  return file == nullptr ? status : status.WithContext(file);
}

}  // namespace

void SqliteStatement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

// A statement that was left in the middle of its rows takes no parameters until it is reset.

SqliteStatement& SqliteStatement::Bind(int index, std::int64_t value) {
  sqlite3_reset(statement_.get());
  sqlite3_bind_int64(statement_.get(), index, value);
  return *this;
}

SqliteStatement& SqliteStatement::Bind(int index, std::string_view text) {
  sqlite3_reset(statement_.get());
  sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
  return *this;
}

Status SqliteStatement::Run() {
  const Result<bool> row = Next();
  if (!row.ok()) return row.status();
  sqlite3_reset(statement_.get());
  return OkStatus();
}

Result<bool> SqliteStatement::Next() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  // The message is read before the reset, which may replace it.
  Status status = OkStatus();
  if (code != SQLITE_DONE) status = LastError(sqlite3_db_handle(statement_.get()));
  sqlite3_reset(statement_.get());
  if (!status.ok()) return status;
  return false;
}

std::int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string SqliteStatement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  const int bytes = sqlite3_column_bytes(statement_.get(), column);
  return text == nullptr ? std::string() : std::string(text, static_cast<std::size_t>(bytes));
}

void SqliteDatabase::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

SqliteDatabase::SqliteDatabase(std::unique_ptr<sqlite3, Close> database)
    : database_(std::move(database)) {}

Result<SqliteDatabase> SqliteDatabase::Open(const std::string& path) {
  {
    // Created here because SQLite would make it readable for all users; its side files get the mode
    // of the main one. Closed before SQLite locks: closing any descriptor of a file drops the
    // process's POSIX locks on it.
    const UniqueFd created(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!created.valid()) return ErrnoStatus(errno, "open " + path);
  }
  return Open(path, SQLITE_OPEN_READWRITE);
}

Result<SqliteDatabase> SqliteDatabase::OpenToRead(const std::string& path) {
  return Open(path, SQLITE_OPEN_READONLY);
}

Result<SqliteDatabase> SqliteDatabase::Open(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_FULLMUTEX, nullptr);
  std::unique_ptr<sqlite3, Close> owned(raw);
  if (code != SQLITE_OK) {
    return SqliteStatus(code, raw == nullptr ? "out of memory" : sqlite3_errmsg(raw))
        .WithContext("open " + path);
  }
  sqlite3_busy_timeout(raw, kBusyMillis);
  return SqliteDatabase(std::move(owned));
}

Status SqliteDatabase::Execute(const std::string& sql) {
  if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) {
    return OkStatus();
  }
  return LastError(database_.get()).WithContext(sql.substr(0, sql.find_first_of(";\n")));
}

Result<SqliteStatement> SqliteDatabase::Prepare(std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  const int code = sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  SqliteStatement statement;
  statement.statement_.reset(raw);
  if (code != SQLITE_OK) return LastError(database_.get()).WithContext(sql.substr(0, 60));
  return statement;
}

}  // namespace muster
