package text

func init() {
	register(map[string]string{
		"There is no such file.": "没有这个文件。",
		"must be en or zh":       "必须是 en 或 zh",
	})
}
