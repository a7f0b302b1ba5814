// A file, or a text in memory, seen through a window that moves forward: readers look at what is loaded, ask for more
// when a record is not complete, and give up what they have used. It counts lines, so that errors can name the place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace orthant {

class FileHandle;

// Lines and columns count from 1; columns count bytes.
struct TextPlace {
  std::int64_t line = 1;
  std::int64_t column = 1;
};

class ChunkedInput {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  // DataError when the file cannot be opened or, later, read. Both leave out a byte order mark.
  static ChunkedInput of_file(const std::filesystem::path& path, std::size_t chunk_bytes = kChunkBytes);
  // `name` is what errors call the text. Chunks smaller than the text are for tests of what happens at their edges.
  static ChunkedInput of_text(std::string text, std::string name, std::size_t chunk_bytes = kChunkBytes);

  ChunkedInput(ChunkedInput&&) noexcept;
  ChunkedInput& operator=(ChunkedInput&&) noexcept;
  ~ChunkedInput();

  // The bytes loaded and not yet used.
  std::string_view window() const { return {buffer_.data() + begin_, end_ - begin_}; }
  bool at_end() const { return at_end_; }  // nothing lies beyond the window

  // Makes the window longer at its end, unless at_end(); views of the window become invalid. Blocks on the file.
  void load_more();

  // Gives up the first `bytes` of the window; their views stay valid until load_more().
  void consume(std::size_t bytes);

  TextPlace place() const { return place_; }  // of the window's first byte
  const std::string& name() const { return name_; }

 private:
  ChunkedInput(std::string name, std::size_t chunk_bytes);
  void skip_byte_order_mark();
  std::size_t read(char* out, std::size_t bytes);
  void refuse_hole(std::string_view loaded) const;

  std::string name_;
  std::size_t chunk_bytes_;
  std::unique_ptr<FileHandle> file_;  // null: memory_
  std::string memory_;
  std::size_t memory_read_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool at_end_ = false;
  TextPlace place_;
};

// The place that lies `offset` bytes after `start`, where `text` begins.
TextPlace place_in(std::string_view text, std::size_t offset, TextPlace start);

}  // namespace orthant
