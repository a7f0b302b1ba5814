#include "orthant/data/parquet.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <numeric>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/files/file_handle.h"

namespace orthant {
namespace {

constexpr std::int64_t kBatchRows = 1024;

// The library tells by Status, and in places by exceptions.
[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
  throw DataError(fmt::format("{}: cannot be read as Parquet: {}", name, reason), {.remedy = "copy the file again"});
}

void check(const arrow::Status& status, const std::string& name) {
  if (!status.ok()) refuse(name, status.message());
}

template <typename T>
T value(arrow::Result<T> result, const std::string& name) {
  check(result.status(), name);
  return std::move(result).ValueUnsafe();
}

template <typename Act>
auto naming(const std::string& name, const Act& act) {
  try {
    return act();
  } catch (const parquet::ParquetException& error) {
    refuse(name, error.what());
  }
}

int text_column(const arrow::Schema& schema, const std::string& column, const std::string& name) {
  const int place = schema.GetFieldIndex(column);
  if (place < 0) {
    throw ConfigError(fmt::format("{}: there is no column \"{}\"", name, column),
                      {.remedy = did_you_mean(column, schema.field_names())});
  }
  const auto& type = *schema.field(place)->type();
  if (type.id() != arrow::Type::STRING && type.id() != arrow::Type::LARGE_STRING) {
    throw ConfigError(fmt::format("{}: column \"{}\" holds {}, not text", name, column, type.ToString()),
                      {.remedy = "name a column of texts with data.text_column or --text-column"});
  }
  return place;
}

class ParquetDocuments : public DocumentReader {
 public:
  ParquetDocuments(const std::filesystem::path& path, const std::string& column, std::int64_t position)
      : name_(path.string()) {
    FileHandle::open_regular(path);  // refuses pipes and what is not there
    naming(name_, [&] {
      auto file = value(arrow::io::ReadableFile::Open(path.string(), arrow::system_memory_pool()), name_);
      parquet::arrow::FileReaderBuilder builder;
      check(builder.Open(std::move(file)), name_);
      parquet::ArrowReaderProperties properties(/*use_threads=*/false);  // ranks are forked
      properties.set_pre_buffer(false);
      properties.set_batch_size(kBatchRows);
      reader_ = value(builder.memory_pool(arrow::system_memory_pool())->properties(properties)->Build(), name_);
      std::shared_ptr<arrow::Schema> schema;
      check(reader_->GetSchema(&schema), name_);
      const int place = text_column(*schema, column, name_);
      int leaf = 0;
      for (int i = 0; i < place; ++i) leaf += leaves(*schema->field(i)->type());
      skip_to(position, leaf);
    });
  }

  bool next(TextChunk& chunk) override {
    while (!texts_ || at_ == texts_->length()) {
      if (!naming(name_, [&] { return next_batch(); })) return false;
    }
    const auto text = text_at(at_++);
    chunk.text.assign(text);
    chunk.continues_document = false;
    chunk.ends_document = true;
    chunk.next = ++row_;
    chunk.bytes = bytes_ += static_cast<std::int64_t>(text.size());
    return true;
  }

 private:
  // The file counts the columns that a list or a struct is made of.
  static int leaves(const arrow::DataType& type) {
    if (type.num_fields() == 0) return 1;
    int count = 0;
    for (const auto& field : type.fields()) count += leaves(*field->type());
    return count;
  }

  // Row groups that lie before the position are not read.
  void skip_to(std::int64_t position, int leaf) {
    const auto facts = reader_->parquet_reader()->metadata();
    int first = 0;
    std::int64_t before = 0;
    while (first < facts->num_row_groups() && before + facts->RowGroup(first)->num_rows() <= position) {
      before += facts->RowGroup(first++)->num_rows();
    }
    std::vector<int> groups(static_cast<std::size_t>(facts->num_row_groups() - first));
    std::iota(groups.begin(), groups.end(), first);
    batches_ = value(reader_->GetRecordBatchReader(groups, {leaf}), name_);
    row_ = before;
    TextChunk skipped;
    while (row_ < position && next(skipped)) continue;
  }

  bool next_batch() {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(batches_->ReadNext(&batch), name_);
    if (!batch) return false;
    texts_ = batch->column(0);
    check(texts_->ValidateFull(), name_);
    at_ = 0;
    return true;
  }

  std::string_view text_at(std::int64_t row) const {
    if (texts_->IsNull(row)) return {};
    if (texts_->type_id() == arrow::Type::STRING) {
      return static_cast<const arrow::StringArray&>(*texts_).GetView(row);
    }
    return static_cast<const arrow::LargeStringArray&>(*texts_).GetView(row);
  }

  std::string name_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::Array> texts_;
  std::int64_t at_ = 0;
  std::int64_t row_ = 0;
  std::int64_t bytes_ = 0;  // of the texts
};

}  // namespace

void check_parquet(const std::string& /*file*/) {}

std::unique_ptr<DocumentReader> open_parquet(const std::filesystem::path& path, const std::string& column,
                                             std::int64_t position) {
  return std::make_unique<ParquetDocuments>(path, column, position);
}

}  // namespace orthant
