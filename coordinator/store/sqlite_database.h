// SqliteDatabase, SqliteStatement: SQLite's C interface with Status and ownership.
//
// Owned by SqliteStore, which calls them from one thread at a time (its own, or its creator's
// before that starts), or by a reader of its file. A statement must not outlive its database.
// Failures contain SQLite's own message; kUnavailable means that another process holds the
// database.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace muster {

class SqliteStatement {
 public:
  SqliteStatement() = default;

  // Parameters are numbered from 1, in the order of the question marks. The text is copied.
  SqliteStatement& Bind(int index, std::int64_t value);
  SqliteStatement& Bind(int index, std::string_view text);

  // Runs a statement that yields no rows and makes it ready for the next Bind.
  Status Run();

  // Steps to the next row; false after the last one, when the statement is ready again.
  Result<bool> Next();
  std::int64_t Int(int column) const;
  std::string Text(int column) const;

 private:
  friend class SqliteDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class SqliteDatabase {
 public:
  // Opens or creates the file with mode 0600.
  static Result<SqliteDatabase> Open(const std::string& path);
  // To read a file that is there, beside the process that writes it.
  static Result<SqliteDatabase> OpenToRead(const std::string& path);

  // Runs one or more statements without parameters.
  Status Execute(const std::string& sql);
  Result<SqliteStatement> Prepare(std::string_view sql);

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit SqliteDatabase(std::unique_ptr<sqlite3, Close> database);
  static Result<SqliteDatabase> Open(const std::string& path, int flags);
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace muster
