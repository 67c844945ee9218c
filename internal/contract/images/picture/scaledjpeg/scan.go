package scaledjpeg

// The data of a scan is a row of MCUs after another. Where the scan has several components, an MCU
// has h × v blocks of each, such as four of Y beside one of Cb and one of Cr:
//
//	┌────┬────┐┌────┐┌────┐
//	│ Y0 │ Y1 ││    ││    │
//	├────┼────┤│ Cb ││ Cr │   in the file: Y0 Y1 Y2 Y3 Cb Cr, the same of the next MCU, …
//	│ Y2 │ Y3 ││    ││    │
//	└────┴────┘└────┘└────┘
//
// A scan of one component has its blocks row by row, whatever h and v are. A sequential JPEG has
// each coefficient in one scan, so its rows are rendered and forgotten. A progressive one has them
// in several, so those of the whole frame are held until the last scan.

// scan is one scan: its components, the coefficients that it has, and how a block is read.
type scan struct {
	*decoder
	bits     bitReader
	selected []scanComponent
	from, to int  // of the coefficients, in zigzag order
	bit      uint // the lowest bit of the coefficients that the scan has
	read     func(c *scanComponent, b block) error
	mcus     int
	marker   byte // the number of the next restart marker
}

// scanComponent is a component in a scan.
type scanComponent struct {
	*component
	dc, ac     *table
	prediction int32  // of the next DC coefficient
	rows       blocks // those that are being read, or of the whole frame
	first      int    // the first row of this MCU in rows
}

// scan reads a scan: its header, and the data that follows. It ends behind the last byte that it
// needs.
func (d *decoder) scan(header []byte) error {
	s, err := d.newScan(header)
	if err != nil {
		return err
	}
	if d.picture == nil {
		if err := d.startPicture(); err != nil {
			return err
		}
	}
	if d.progressive {
		err = s.readProgressive()
	} else {
		err = s.readSequential()
	}
	d.pos = s.bits.end()
	return err
}

// newScan reads the header of a scan: the number of components; the id and tables of each; the
// range of coefficients and their bits, which are fixed if the JPEG is not progressive.
func (d *decoder) newScan(h []byte) (*scan, error) {
	if len(h) < 6 || len(h) != 4+2*int(h[0]) || int(h[0]) > len(d.components) {
		return nil, errInvalid
	}
	s := &scan{decoder: d, to: 63, bits: bitReader{data: d.data}}
	s.bits.reset(d.pos)
	s.read = s.sequential
	total := 0
	for i := range int(h[0]) {
		c, err := d.scanComponent(h[1+2*i], h[2+2*i])
		if err != nil {
			return nil, err
		}
		for _, other := range s.selected {
			if other.component == c.component {
				return nil, errInvalid
			}
		}
		total += c.h * c.v
		s.selected = append(s.selected, c)
	}
	if len(d.components) > 1 && total > 10 {
		return nil, errInvalid
	}
	if c := s.selected[0]; len(s.selected) == 1 && d.interval > 0 && c.h*c.v > 1 {
		return nil, ErrUnusual // image/jpeg counts h × v blocks as one
	}
	if !d.progressive {
		return s, nil
	}
	return s, s.setRange(h[len(h)-3:])
}

// scanComponent finds the component with an id, and its tables.
func (d *decoder) scanComponent(id, numbers byte) (scanComponent, error) {
	dc, ac := numbers>>4, numbers&15
	if dc > d.maxTable() || ac > d.maxTable() {
		return scanComponent{}, errInvalid
	}
	for i := range d.components {
		if d.components[i].id != id {
			continue
		}
		c := scanComponent{component: &d.components[i], dc: d.huffman[0][dc], ac: d.huffman[1][ac]}
		if c.dc == nil {
			c.dc = &table{}
		}
		if c.ac == nil {
			c.ac = &table{}
		}
		return c, nil
	}
	return scanComponent{}, errInvalid
}

// setRange takes the range of coefficients of a progressive scan. A scan has either the DC
// coefficients of components, or a range of AC coefficients of one; either their first bits or one
// more bit of each.
func (s *scan) setRange(h []byte) error {
	high := uint(h[2] >> 4)
	s.from, s.to, s.bit = int(h[0]), int(h[1]), uint(h[2]&15)
	if s.from > s.to || s.to > 63 || (s.from == 0 && s.to > 0) {
		return errInvalid
	}
	if s.from > 0 && len(s.selected) > 1 {
		return errInvalid
	}
	if high != 0 && high != s.bit+1 {
		return errInvalid
	}
	switch {
	case s.from == 0 && high == 0:
		s.read = s.firstDC
	case s.from == 0:
		s.read = s.refineDC
	case high == 0:
		s.read = s.firstAC
	default:
		s.read = s.refineAC
	}
	return nil
}

// readProgressive reads a scan into the coefficients of the frame.
func (s *scan) readProgressive() error {
	for i := range s.selected {
		c := &s.selected[i]
		if c.blocks.values == nil {
			c.blocks = newBlocks(c.component, s.mcuRows*c.v)
			c.blocks.nonzero = make([]uint64, c.blockCols*s.mcuRows*c.v)
		}
		c.rows = c.blocks
	}
	for row := range s.mcuRows {
		for i := range s.selected {
			s.selected[i].first = row * s.selected[i].v
		}
		if err := s.readRow(row); err != nil {
			return err
		}
	}
	return nil
}

// readSequential reads a scan row by row; what has been read is rendered by other goroutines.
func (s *scan) readSequential() error {
	r := startRenderer(s)
	defer r.wait()
	for row := range s.mcuRows {
		t := r.strip(row)
		for i := range s.selected {
			s.selected[i].rows = t.rows[i]
		}
		if err := s.readRow(row); err != nil {
			return err
		}
		r.render(t)
	}
	return nil
}

// readRow reads a row of MCUs. An MCU of one component is one block.
func (s *scan) readRow(row int) error {
	if len(s.selected) == 1 {
		return s.readSingleRow(row)
	}
	for col := range s.mcuCols {
		for i := range s.selected {
			c := &s.selected[i]
			for y := range c.v {
				for x := range c.h {
					if err := s.readBlock(c, c.h*col+x, y); err != nil {
						return err
					}
				}
			}
		}
		if err := s.endMCU(); err != nil {
			return err
		}
	}
	return nil
}

// readSingleRow is readRow for one component. Blocks that pad the last MCUs are not in the file.
func (s *scan) readSingleRow(row int) error {
	c := &s.selected[0]
	for y := range c.v {
		if 8*(row*c.v+y) >= s.height {
			break
		}
		for x := 0; x < c.blockCols && 8*x < s.width; x++ {
			if err := s.readBlock(c, x, y); err != nil {
				return err
			}
			if err := s.endMCU(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readBlock reads the block in a column and a row of the MCU's rows.
func (s *scan) readBlock(c *scanComponent, x, y int) error {
	if err := s.read(c, c.rows.at(x, c.first+y)); err != nil {
		return err
	}
	if s.bits.left < 0 {
		return errTruncated
	}
	return nil
}

// endMCU counts an MCU. At the end of an interval it continues behind the restart marker.
func (s *scan) endMCU() error {
	s.mcus++
	if s.interval == 0 || s.mcus%s.interval != 0 || s.mcus == s.mcuCols*s.mcuRows {
		return nil
	}
	if err := s.bits.restart(markerRST0 + s.marker); err != nil {
		return err
	}
	s.marker = (s.marker + 1) % 8
	s.eobRun = 0
	for i := range s.selected {
		s.selected[i].prediction = 0
	}
	return nil
}
