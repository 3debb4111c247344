// Times in the reader's zone, live sections, keys. Nothing here is needed to read a page.
