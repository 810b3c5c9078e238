#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ingest/text/byte_stream.hpp"
#include "ingest/text/source_files.hpp"

namespace tenfold {

/// Bytes that are not filled with zeros before something is read into them.
template <class T>
struct UninitializedAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Arguments>
  void construct(U* at, Arguments&&... arguments) {
    ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
  }
};
using TextMemory = std::vector<char, UninitializedAllocator<char>>;

/// How a file says where a record ends.
enum class TextKind : std::uint8_t { json_lines, json_array, csv };

/// What all blocks of one file share.
struct TextFile {
  std::string display;  ///< for messages
  TextKind kind = TextKind::json_lines;
  char delimiter = ',';             ///< CSV
  char line_end = '\n';             ///< CSV: '\r' in files whose lines end with it alone
  std::vector<std::string> header;  ///< CSV: the names of its columns
  NaValues na_values;               ///< CSV
};

/// Whole records of one file, one after the other, with a NUL and JsonText::kSlackBytes behind.
struct Block {
  std::shared_ptr<const TextFile> file;
  std::uint64_t number = 0;      ///< of the block, over all files
  std::uint64_t first_line = 1;  ///< of a block that begins a file: its line in it
  bool begins_file = false;
  const char* begin = nullptr;
  const char* end = nullptr;

  TextMemory memory;
};

/// One record: [begin, end), the end being a character of no record, and its line.
struct Record {
  const char* begin = nullptr;
  const char* end = nullptr;
  std::uint64_t line = 0;  ///< counted from the begin of the block
};

/// The records of a block, in order.
class RecordCursor {
 public:
  explicit RecordCursor(const Block& block) : block_(&block), at_(block.begin) {}

  /// False after the last one. Blank lines are no records.
  bool next(Record& record);
  /// Lines of the block that were passed; after the last record, all.
  std::uint64_t num_lines() const noexcept { return line_; }

 private:
  bool next_line(Record& record);
  bool next_item(Record& record);
  bool next_csv(Record& record);

  const Block* block_;
  const char* at_;
  std::uint64_t line_ = 0;
  bool ended_ = false;  ///< of an array
};

/// Cuts files into blocks of whole records, in order, through a buffer. A record larger than the
/// block makes it grow.
class BlockReader {
 public:
  /// Largest record that is read: more is no data, but a file of another kind.
  static constexpr std::size_t kMaxRecordBytes = std::size_t{1} << 30;

  BlockReader(std::vector<SourceFile> files, std::size_t block_bytes);

  /// The next block, into memory that is used again; false after the last one. Throws
  /// Error(corrupt) for a file that is cut off or no text, Error(invalid_argument) for a header
  /// with twins.
  bool next(Block& block);

  /// Bytes of files that were read.
  std::uint64_t num_read() const;
  std::uint64_t num_files() const noexcept { return next_file_; }

 private:
  bool open_next_file();
  void fill(TextMemory& memory, std::size_t size);
  const char* last_end(const char* begin, const char* end);
  void begin_array(const char*& begin, const char* end);
  void expect_blanks(const char* begin, const char* end);
  bool begin_file(const char*& begin, const char* end);
  void read_records(TextMemory& memory, const char*& begin, const char*& end);
  bool take_header(const char*& begin, const char* end);
  bool skip_blank_lines(const char*& begin, const char* end);
  bool find_line_end(const char* begin, const char* end);
  std::uint64_t count_lines(const char* begin, const char* end) const;

  std::vector<SourceFile> files_;
  std::size_t block_bytes_;
  std::size_t next_file_ = 0;
  std::unique_ptr<ByteStream> stream_;
  std::shared_ptr<TextFile> file_;
  bool begins_ = false;  ///< nothing of the file was handed out yet
  bool at_end_ = true;   ///< the stream has no more bytes
  bool array_ended_ = false;
  std::vector<char> rest_;  ///< the begin of a record, read already
  std::uint64_t line_ = 1;  ///< where the records of the file begin
  std::uint64_t num_blocks_ = 0;
  std::uint64_t num_read_ = 0;  ///< of files that are done
};

/// The fields of one record of CSV; false, with what is wrong, if it is malformed. `scratch` holds
/// what was quoted.
struct CsvField {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool is_quoted = false;
  bool has_escapes = false;  ///< twins of quotes in it
  std::string_view text() const { return {begin, static_cast<std::size_t>(end - begin)}; }
};

/// Takes the field at `at`, which then stands behind its delimiter or, after the last field, is
/// null. Null, or what is wrong.
const char* take_csv_field(const char*& at, const char* end, char delimiter, CsvField& field);

/// One past the record that begins at `begin`, its line end included; null if it does not end
/// before `end`.
const char* end_of_csv_record(const char* begin, const char* end, char delimiter,
                              char line_end = '\n');

}  // namespace tenfold
